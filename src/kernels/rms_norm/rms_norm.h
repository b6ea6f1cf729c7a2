// RMS norm over rows:  x[r,i] = src[r,i] (+ addend[r,i]);  dst[r,i] = (x[r,i] · s) · gain[i],  s = 1 ÷ sqrt(sum16(x²) ÷ dim + eps)
//
// Shapes    src, addend, sum, dst (n_rows, dim) with strides in floats; gain (dim). dst or sum may be src or addend.
// Numerics  canonical (rules 2.6): every variant equals rms_norm_ref.cc to the bit. With an addend the bits are those of `add`
//           followed by a norm without one.
// Memory    reads and writes exactly dim elements a row.
// Threads   the caller splits rows; a call touches only its own rows.
// Cost      two reads of src (the second from L1 or L2) and one write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace espalier {

struct RmsNormArgs {
  const float* src;
  size_t src_stride;
  const float* gain;
  float* dst;
  size_t dst_stride;
  uint32_t n_rows, dim;
  float eps;
  const float* addend = nullptr;  // residual to add first; then sum is written with src + addend
  size_t addend_stride = 0;
  float* sum = nullptr;
  size_t sum_stride = 0;
};
using RmsNormFn = void (*)(const RmsNormArgs&);
std::span<const Variant<RmsNormFn>> rms_norm_variants();

}  // namespace espalier
