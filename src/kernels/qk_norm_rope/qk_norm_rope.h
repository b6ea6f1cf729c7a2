// What stands between the q and k projections and attention: an RMS norm of each head (LFM2, Qwen 3; none without a gain), then
// RoPE, then the scale. Called once for q and once for k.
//   x = gain ? rms_norm of the head : src
//   pair (x1, x2) = (x[i], x[i + hd/2]), interleaved: (x[2i], x[2i + 1]):
//   x1' = fma(−x2, sin[i], x1 · cos[i]),  x2' = fma(x1, sin[i], x2 · cos[i]);  dst = x' · scale
//
// Shapes    src, dst (n_rows, n_heads · head_dim), strides in floats; dst may be src. rope (n_rows, head_dim): RopeTable::fill
//           for the rows' positions. gain (head_dim) or nullptr. head_dim even, at most kHeadDimMax.
// Numerics  canonical (rules 2.6, 2.7); scale is one product, left out where it is 1 (k): the bits are the same.
//           q's scale is 1 ÷ sqrt(head_dim) in fp32: attention_q_scale().
// Threads   the caller splits rows (or heads, by moving the pointers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace espalier {

inline constexpr uint32_t kHeadDimMax = 256;

struct QkNormRopeArgs {
  const float* src;
  size_t src_stride;
  float* dst;
  size_t dst_stride;
  const float* rope;
  const float* gain;
  float eps;
  float scale;
  bool interleaved;
  uint32_t n_rows, n_heads, head_dim;
};
using QkNormRopeFn = void (*)(const QkNormRopeArgs&);
std::span<const Variant<QkNormRopeFn>> qk_norm_rope_variants();

// 1 ÷ sqrt(head_dim), each operation rounded to fp32.
float attention_q_scale(uint32_t head_dim);

}  // namespace espalier
