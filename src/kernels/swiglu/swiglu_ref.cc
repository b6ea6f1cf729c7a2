#include "kernels/math/canonical.h"
#include "kernels/swiglu/swiglu.h"

namespace espalier {

void swiglu_ref(const SwigluArgs& a) {
  for (uint32_t r = 0; r < a.n_rows; ++r)
    for (uint32_t i = 0; i < a.dim; ++i)
      a.dst[r * a.dst_stride + i] = canonical_silu(a.gate[r * a.gate_stride + i]) * a.up[r * a.up_stride + i];
}

}  // namespace espalier
