// The vector form of add, written once. Included by add_<isa>.cc after its simd header; internal linkage.
#pragma once

#include "kernels/add/add.h"

namespace espalier {
namespace {

inline void add_rows(const AddArgs& args) {
  for (uint32_t r = 0; r < args.n_rows; ++r) {
    const float* a = args.a + r * args.a_stride;
    const float* b = args.b + r * args.b_stride;
    float* dst = args.dst + r * args.dst_stride;
    uint32_t i = 0;
    for (; i + kLanes <= args.dim; i += kLanes) vstore(dst + i, vadd(vload(a + i), vload(b + i)));
    const int n = static_cast<int>(args.dim - i);
    if (n > 0) vstore_n(dst + i, vadd(vload_n(a + i, n), vload_n(b + i, n)), n);
  }
}

}  // namespace
}  // namespace espalier
