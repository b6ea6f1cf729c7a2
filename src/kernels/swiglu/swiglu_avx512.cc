#include "kernels/math/simd_avx512.h"
#include "kernels/swiglu/swiglu_simd.h"

namespace espalier {
void swiglu_avx512(const SwigluArgs& args) { swiglu_rows(args); }
}  // namespace espalier
