#include "kernels/add/add.h"

namespace espalier {

void add_ref(const AddArgs& a) {
  for (uint32_t r = 0; r < a.n_rows; ++r)
    for (uint32_t i = 0; i < a.dim; ++i) a.dst[r * a.dst_stride + i] = a.a[r * a.a_stride + i] + a.b[r * a.b_stride + i];
}

}  // namespace espalier
