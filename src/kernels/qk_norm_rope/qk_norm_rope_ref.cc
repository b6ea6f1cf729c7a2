#include <cmath>

#include "kernels/math/canonical.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace espalier {
namespace {

void normalize(const QkNormRopeArgs& a, const float* src, float* x) {
  if (a.gain == nullptr) {
    for (uint32_t i = 0; i < a.head_dim; ++i) x[i] = src[i];
    return;
  }
  Sum16 squares;
  for (uint32_t i = 0; i < a.head_dim; ++i) squares.add_product(i, src[i], src[i]);
  const float scale = 1.0f / std::sqrt(squares.total() / static_cast<float>(a.head_dim) + a.eps);
  for (uint32_t i = 0; i < a.head_dim; ++i) x[i] = src[i] * scale * a.gain[i];
}

void rotate(const QkNormRopeArgs& a, const float* rope, const float* x, float* dst) {
  const uint32_t half = a.head_dim / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const uint32_t first = a.interleaved ? 2 * i : i, second = a.interleaved ? 2 * i + 1 : i + half;
    const float cos = rope[i], sin = rope[half + i];
    const float x1 = x[first], x2 = x[second];
    dst[first] = std::fma(-x2, sin, x1 * cos) * a.scale;
    dst[second] = std::fma(x1, sin, x2 * cos) * a.scale;
  }
}

}  // namespace

void qk_norm_rope_ref(const QkNormRopeArgs& a) {
  float x[kHeadDimMax];
  for (uint32_t r = 0; r < a.n_rows; ++r)
    for (uint32_t h = 0; h < a.n_heads; ++h) {
      normalize(a, a.src + r * a.src_stride + size_t{h} * a.head_dim, x);
      rotate(a, a.rope + size_t{r} * a.head_dim, x, a.dst + r * a.dst_stride + size_t{h} * a.head_dim);
    }
}

}  // namespace espalier
