#include "kernels/math/simd_avx2.h"
#include "kernels/swiglu/swiglu_simd.h"

namespace espalier {
void swiglu_avx2(const SwigluArgs& args) { swiglu_rows(args); }
}  // namespace espalier
