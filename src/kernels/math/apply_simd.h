// The vector form of apply, written once. Included by apply_<isa>.cc after its simd header; internal linkage.
#pragma once

#include "kernels/math/apply.h"

namespace espalier {
namespace {

template <typename Fn>
inline void apply_vectors(const ApplyArgs& a, Fn fn) {
  uint32_t i = 0;
  for (; i + kLanes <= a.n; i += kLanes) vstore(a.dst + i, fn(vload(a.src + i)));
  const int n = static_cast<int>(a.n - i);
  if (n > 0) vstore_n(a.dst + i, fn(vload_n(a.src + i, n)), n);
}

inline void apply_function(const ApplyArgs& a) {
  switch (a.function) {
    case CanonicalFunction::exp: return apply_vectors(a, [](Vf x) { return canonical_exp(x); });
    case CanonicalFunction::log: return apply_vectors(a, [](Vf x) { return canonical_log(x); });
    case CanonicalFunction::tanh: return apply_vectors(a, [](Vf x) { return canonical_tanh(x); });
    case CanonicalFunction::sigmoid: return apply_vectors(a, [](Vf x) { return canonical_sigmoid(x); });
    case CanonicalFunction::silu: return apply_vectors(a, [](Vf x) { return canonical_silu(x); });
  }
}

}  // namespace
}  // namespace espalier
