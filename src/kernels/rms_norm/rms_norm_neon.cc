#include "kernels/math/simd_neon.h"
#include "kernels/rms_norm/rms_norm_simd.h"

namespace espalier {
void rms_norm_neon(const RmsNormArgs& args) { rms_norm_rows(args); }
}  // namespace espalier
