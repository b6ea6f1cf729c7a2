#include "kernels/math/simd_neon.h"
#include "kernels/qk_norm_rope/qk_norm_rope_simd.h"

namespace espalier {
void qk_norm_rope_neon(const QkNormRopeArgs& args) { qk_norm_rope_rows(args); }
}  // namespace espalier
