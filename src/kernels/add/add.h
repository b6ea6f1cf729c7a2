// Sum over rows:  dst[r,i] = a[r,i] + b[r,i], one rounding. Shapes (n_rows, dim), strides in floats; dst may be a or b.
// Threads: the caller splits rows. Bandwidth bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace espalier {

struct AddArgs {
  const float* a;
  size_t a_stride;
  const float* b;
  size_t b_stride;
  float* dst;
  size_t dst_stride;
  uint32_t n_rows, dim;
};
using AddFn = void (*)(const AddArgs&);
std::span<const Variant<AddFn>> add_variants();

}  // namespace espalier
