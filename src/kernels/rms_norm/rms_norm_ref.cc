#include <cmath>

#include "kernels/math/canonical.h"
#include "kernels/rms_norm/rms_norm.h"

namespace espalier {

void rms_norm_ref(const RmsNormArgs& a) {
  for (uint32_t r = 0; r < a.n_rows; ++r) {
    const float* src = a.src + r * a.src_stride;
    if (a.addend != nullptr) {
      const float* addend = a.addend + r * a.addend_stride;
      float* sum = a.sum + r * a.sum_stride;
      for (uint32_t i = 0; i < a.dim; ++i) sum[i] = src[i] + addend[i];
      src = sum;
    }
    Sum16 squares;
    for (uint32_t i = 0; i < a.dim; ++i) squares.add_product(i, src[i], src[i]);
    const float scale = 1.0f / std::sqrt(squares.total() / static_cast<float>(a.dim) + a.eps);
    float* dst = a.dst + r * a.dst_stride;
    for (uint32_t i = 0; i < a.dim; ++i) dst[i] = src[i] * scale * a.gain[i];
  }
}

}  // namespace espalier
