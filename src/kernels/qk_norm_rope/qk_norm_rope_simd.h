// The vector form of qk_norm_rope, written once. Included by qk_norm_rope_<isa>.cc after its simd header; internal linkage.
#pragma once

#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace espalier {
namespace {

inline Vf load_some(const float* p, int n) { return n == kLanes ? vload(p) : vload_n(p, n); }
inline void store_some(float* p, Vf v, int n) { n == kLanes ? vstore(p, v) : vstore_n(p, v, n); }
inline int lanes_left(uint32_t end, uint32_t i) { return end - i < kLanes ? static_cast<int>(end - i) : kLanes; }

inline void normalize(const QkNormRopeArgs& a, const float* src, float* x) {
  constexpr uint32_t kParts = 16 / kLanes;
  if (a.gain == nullptr) {
    for (uint32_t i = 0; i < a.head_dim; i += kLanes) {
      const int n = lanes_left(a.head_dim, i);
      store_some(x + i, load_some(src + i, n), n);
    }
    return;
  }
  Vf part[kParts];
  for (uint32_t k = 0; k < kParts; ++k) part[k] = vzero();
  for (uint32_t base = 0; base < a.head_dim; base += 16)
    for (uint32_t k = 0; k < kParts && base + k * kLanes < a.head_dim; ++k) {
      const uint32_t i = base + k * kLanes;
      const Vf v = load_some(src + i, lanes_left(a.head_dim, i));
      part[k] = vfma(v, v, part[k]);
    }
  const Vf scale = vset(1.0f / __builtin_sqrtf(sum16(part) / static_cast<float>(a.head_dim) + a.eps));
  for (uint32_t i = 0; i < a.head_dim; i += kLanes) {
    const int n = lanes_left(a.head_dim, i);
    store_some(x + i, vmul(vmul(load_some(src + i, n), scale), load_some(a.gain + i, n)), n);
  }
}

// first, second: the two members of the pairs, each contiguous (head_dim/2).
inline void rotate_halves(const QkNormRopeArgs& a, const float* rope, const float* first, const float* second, float* dst1,
                          float* dst2) {
  const uint32_t half = a.head_dim / 2;
  const Vf scale = vset(a.scale);
  for (uint32_t i = 0; i < half; i += kLanes) {
    const int n = lanes_left(half, i);
    const Vf x1 = load_some(first + i, n), x2 = load_some(second + i, n);
    const Vf cos = load_some(rope + i, n), sin = load_some(rope + half + i, n);
    store_some(dst1 + i, vmul(vfnma(x2, sin, vmul(x1, cos)), scale), n);
    store_some(dst2 + i, vmul(vfma(x1, sin, vmul(x2, cos)), scale), n);
  }
}

inline void qk_norm_rope_rows(const QkNormRopeArgs& a) {
  const uint32_t half = a.head_dim / 2;
  float x[kHeadDimMax], pairs[kHeadDimMax];
  for (uint32_t r = 0; r < a.n_rows; ++r) {
    const float* rope = a.rope + size_t{r} * a.head_dim;
    for (uint32_t h = 0; h < a.n_heads; ++h) {
      float* dst = a.dst + r * a.dst_stride + size_t{h} * a.head_dim;
      normalize(a, a.src + r * a.src_stride + size_t{h} * a.head_dim, x);
      if (!a.interleaved) {
        rotate_halves(a, rope, x, x + half, dst, dst + half);
        continue;
      }
      for (uint32_t i = 0; i < half; ++i) pairs[i] = x[2 * i], pairs[half + i] = x[2 * i + 1];
      rotate_halves(a, rope, pairs, pairs + half, x, x + half);
      for (uint32_t i = 0; i < half; ++i) dst[2 * i] = x[i], dst[2 * i + 1] = x[half + i];
    }
  }
}

}  // namespace
}  // namespace espalier
