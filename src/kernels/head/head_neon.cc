#include "kernels/math/simd_neon.h"

#include "kernels/head/head_simd.h"  // after the vectors that it is written in

namespace espalier {
void head_scan_neon(const HeadScanArgs& args);
void head_scan_neon(const HeadScanArgs& args) { scan(args); }
}  // namespace espalier
