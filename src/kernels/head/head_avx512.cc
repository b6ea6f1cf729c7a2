#include "kernels/math/simd_avx512.h"

#include "kernels/head/head_simd.h"  // after the vectors that it is written in

namespace espalier {
void head_scan_avx512(const HeadScanArgs& args);
void head_scan_avx512(const HeadScanArgs& args) { scan(args); }
}  // namespace espalier
