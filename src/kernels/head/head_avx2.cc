#include "kernels/math/simd_avx2.h"

#include "kernels/head/head_simd.h"  // after the vectors that it is written in

namespace espalier {
void head_scan_avx2(const HeadScanArgs& args);
void head_scan_avx2(const HeadScanArgs& args) { scan(args); }
}  // namespace espalier
