#include "kernels/math/simd_avx512.h"
#include "kernels/qk_norm_rope/qk_norm_rope_simd.h"

namespace espalier {
void qk_norm_rope_avx512(const QkNormRopeArgs& args) { qk_norm_rope_rows(args); }
}  // namespace espalier
