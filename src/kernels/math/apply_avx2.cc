#include "kernels/math/simd_avx2.h"
#include "kernels/math/apply_simd.h"

namespace espalier {
void apply_avx2(const ApplyArgs& args) { apply_function(args); }
}  // namespace espalier
