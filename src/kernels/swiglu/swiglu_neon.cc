#include "kernels/math/simd_neon.h"
#include "kernels/swiglu/swiglu_simd.h"

namespace espalier {
void swiglu_neon(const SwigluArgs& args) { swiglu_rows(args); }
}  // namespace espalier
