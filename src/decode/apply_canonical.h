// A canonical function over an array in place, by the best variant of this machine: scalar calls go through libm's fma where the
// compiler may not assume the instruction. The bits are those of kernels/math/canonical.h.
#pragma once

#include <span>

#include "kernels/math/apply.h"

namespace espalier {

inline void apply_canonical(CanonicalFunction function, std::span<float> values) {
  static const ApplyFn fn = [] {
    const Result<Isa> isa = chosen_isa();
    return pick(apply_variants(), isa.ok() ? *isa : Isa::portable);
  }();
  fn({function, values.data(), values.data(), static_cast<uint32_t>(values.size())});
}

}  // namespace espalier
