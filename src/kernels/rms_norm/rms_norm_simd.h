// The vector form of rms_norm, written once. Included by rms_norm_<isa>.cc after its simd header; internal linkage.
#pragma once

#include "kernels/rms_norm/rms_norm.h"

namespace espalier {
namespace {

// x = src (+ addend, then written to sum); returns sum16(x · x).
inline float square_sum(const float* src, const float* addend, float* sum, uint32_t dim) {
  constexpr uint32_t kParts = 16 / kLanes;
  Vf part[kParts];
  for (uint32_t k = 0; k < kParts; ++k) part[k] = vzero();
  for (uint32_t base = 0; base < dim; base += 16) {
    for (uint32_t k = 0; k < kParts; ++k) {
      const uint32_t i = base + k * kLanes;
      if (i >= dim) break;
      const int n = dim - i < kLanes ? static_cast<int>(dim - i) : kLanes;
      Vf x = n == kLanes ? vload(src + i) : vload_n(src + i, n);
      if (addend != nullptr) {
        x = vadd(x, n == kLanes ? vload(addend + i) : vload_n(addend + i, n));
        n == kLanes ? vstore(sum + i, x) : vstore_n(sum + i, x, n);
      }
      part[k] = vfma(x, x, part[k]);
    }
  }
  return sum16(part);
}

inline void rms_norm_rows(const RmsNormArgs& a) {
  for (uint32_t r = 0; r < a.n_rows; ++r) {
    const float* src = a.src + r * a.src_stride;
    const float* addend = a.addend == nullptr ? nullptr : a.addend + r * a.addend_stride;
    float* sum = a.addend == nullptr ? nullptr : a.sum + r * a.sum_stride;
    const float squares = square_sum(src, addend, sum, a.dim);
    if (addend != nullptr) src = sum;
    const Vf scale = vset(1.0f / __builtin_sqrtf(squares / static_cast<float>(a.dim) + a.eps));
    float* dst = a.dst + r * a.dst_stride;
    uint32_t i = 0;
    for (; i + kLanes <= a.dim; i += kLanes) vstore(dst + i, vmul(vmul(vload(src + i), scale), vload(a.gain + i)));
    const int n = static_cast<int>(a.dim - i);
    if (n > 0) vstore_n(dst + i, vmul(vmul(vload_n(src + i, n), scale), vload_n(a.gain + i, n)), n);
  }
}

}  // namespace
}  // namespace espalier
