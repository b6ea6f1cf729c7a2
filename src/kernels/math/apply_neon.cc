#include "kernels/math/simd_neon.h"
#include "kernels/math/apply_simd.h"

namespace espalier {
void apply_neon(const ApplyArgs& args) { apply_function(args); }
}  // namespace espalier
