#include <cmath>

#include "kernels/short_conv/short_conv.h"

namespace espalier {

void short_conv_ref(const ShortConvArgs& a) {
  for (uint32_t r = 0; r < a.n_rows; ++r)
    for (uint32_t c = a.channel_begin; c < a.channel_end; ++c)
      a.u[r * a.u_stride + c] = a.b[r * a.src_stride + c] * a.x[r * a.src_stride + c];
  for (uint32_t r = 0; r < a.n_rows; ++r) {
    const float* const* frames = a.frames + size_t{r} * a.taps;
    for (uint32_t c = a.channel_begin; c < a.channel_end; ++c) {
      float v = a.kernel[c] * frames[0][c];
      for (uint32_t t = 1; t < a.taps; ++t) v = std::fma(a.kernel[size_t{t} * a.dim + c], frames[t][c], v);
      if (a.bias != nullptr) v += a.bias[c];
      a.dst[r * a.dst_stride + c] = a.g[r * a.src_stride + c] * v;
    }
  }
}

}  // namespace espalier
