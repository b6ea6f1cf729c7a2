#include "kernels/math/simd_avx512.h"
#include "kernels/rms_norm/rms_norm_simd.h"

namespace espalier {
void rms_norm_avx512(const RmsNormArgs& args) { rms_norm_rows(args); }
}  // namespace espalier
