// Gated unit over rows:  dst[r,i] = silu(gate[r,i]) · up[r,i],  silu(g) = g ÷ (1 + exp(−g))
//
// Shapes    (n_rows, dim), strides in floats; gate and up may be the two halves of one matrix product; dst may be either.
// Numerics  canonical (rules 2.9, canonical_silu of math/canonical.h), then one product.
// Threads   the caller splits rows or columns (by moving the pointers); bound by arithmetic, about 20 operations an element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace espalier {

struct SwigluArgs {
  const float* gate;
  size_t gate_stride;
  const float* up;
  size_t up_stride;
  float* dst;
  size_t dst_stride;
  uint32_t n_rows, dim;
};
using SwigluFn = void (*)(const SwigluArgs&);
std::span<const Variant<SwigluFn>> swiglu_variants();

}  // namespace espalier
