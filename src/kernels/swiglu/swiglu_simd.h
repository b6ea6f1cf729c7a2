// The vector form of swiglu, written once. Included by swiglu_<isa>.cc after its simd header; internal linkage.
#pragma once

#include "kernels/swiglu/swiglu.h"

namespace espalier {
namespace {

inline void swiglu_rows(const SwigluArgs& a) {
  for (uint32_t r = 0; r < a.n_rows; ++r) {
    const float* gate = a.gate + r * a.gate_stride;
    const float* up = a.up + r * a.up_stride;
    float* dst = a.dst + r * a.dst_stride;
    uint32_t i = 0;
    for (; i + kLanes <= a.dim; i += kLanes) vstore(dst + i, vmul(canonical_silu(vload(gate + i)), vload(up + i)));
    const int n = static_cast<int>(a.dim - i);
    if (n > 0) vstore_n(dst + i, vmul(canonical_silu(vload_n(gate + i, n)), vload_n(up + i, n)), n);
  }
}

}  // namespace
}  // namespace espalier
