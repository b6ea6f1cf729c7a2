#include "kernels/math/simd_avx512.h"
#include "kernels/math/apply_simd.h"

namespace espalier {
void apply_avx512(const ApplyArgs& args) { apply_function(args); }
}  // namespace espalier
