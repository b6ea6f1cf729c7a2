// The vector form of short_conv, written once. Included by short_conv_<isa>.cc after its simd header; internal linkage.
#pragma once

#include "kernels/short_conv/short_conv.h"

namespace espalier {
namespace {

inline Vf load_some(const float* p, int n) { return n == kLanes ? vload(p) : vload_n(p, n); }
inline void store_some(float* p, Vf v, int n) { n == kLanes ? vstore(p, v) : vstore_n(p, v, n); }

inline void convolve(const ShortConvArgs& a, uint32_t r, uint32_t c, int n) {
  const float* const* frames = a.frames + size_t{r} * a.taps;
  Vf v = vmul(load_some(a.kernel + c, n), load_some(frames[0] + c, n));
  for (uint32_t t = 1; t < a.taps; ++t)
    v = vfma(load_some(a.kernel + size_t{t} * a.dim + c, n), load_some(frames[t] + c, n), v);
  if (a.bias != nullptr) v = vadd(v, load_some(a.bias + c, n));
  store_some(a.dst + r * a.dst_stride + c, vmul(load_some(a.g + r * a.src_stride + c, n), v), n);
}

inline void short_conv_channels(const ShortConvArgs& a) {
  // Blocks of channels, so that u of all rows is still near when the second pass reads it.
  constexpr uint32_t kBlock = 128;
  for (uint32_t begin = a.channel_begin; begin < a.channel_end; begin += kBlock) {
    const uint32_t end = a.channel_end - begin < kBlock ? a.channel_end : begin + kBlock;
    for (uint32_t r = 0; r < a.n_rows; ++r) {
      const size_t src = r * a.src_stride;
      for (uint32_t c = begin; c < end; c += kLanes) {
        const int n = end - c < kLanes ? static_cast<int>(end - c) : kLanes;
        store_some(a.u + r * a.u_stride + c, vmul(load_some(a.b + src + c, n), load_some(a.x + src + c, n)), n);
      }
    }
    for (uint32_t r = 0; r < a.n_rows; ++r)
      for (uint32_t c = begin; c < end; c += kLanes) convolve(a, r, c, end - c < kLanes ? static_cast<int>(end - c) : kLanes);
  }
}

}  // namespace
}  // namespace espalier
