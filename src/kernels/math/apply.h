// A canonical function over an array:  dst[i] = f(src[i]). dst may be src.
// Numerics  math/canonical.h, to the bit. Threads: the caller splits the array.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace espalier {

enum class CanonicalFunction { exp, log, tanh, sigmoid, silu };

struct ApplyArgs {
  CanonicalFunction function;
  const float* src;
  float* dst;
  uint32_t n;
};
using ApplyFn = void (*)(const ApplyArgs&);
std::span<const Variant<ApplyFn>> apply_variants();

}  // namespace espalier
