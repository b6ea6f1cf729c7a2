#include "kernels/math/simd_avx2.h"
#include "kernels/rms_norm/rms_norm_simd.h"

namespace espalier {
void rms_norm_avx2(const RmsNormArgs& args) { rms_norm_rows(args); }
}  // namespace espalier
