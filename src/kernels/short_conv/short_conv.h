// Gated short convolution over rows (LFM2):
//   u[r,c] = b[r,c] · x[r,c]                                   rounded once; what the state keeps as frames
//   v[r,c] = kernel[0,c] · f₀[c], then fma(kernel[t,c], fₜ[c], v) for t = 1 … taps − 1, then + bias[c]
//   dst[r,c] = g[r,c] · v[r,c]                                 (g is the chunk called C in checkpoints)
//
// Shapes    b, g, x (n_rows, dim), one stride (the three chunks of in_proj's output); u, dst (n_rows, dim);
//           kernel (taps, dim): transposed from a checkpoint's (dim, taps), oldest tap first; bias (dim) or nullptr.
// Frames    frames[r · taps + t] is fₜ of row r: dim floats, a row of u in this call, a frame of the state, or a row of zeros
//           for what lies before the start. Causal: the nearest taps − 1 ancestors, oldest first, then row r of u itself.
//           Centred (encoders): rows r − taps/2 … of u. Rows of u may be named before they are made: all of u comes first.
// Numerics  canonical (rules 2.9): every variant equals short_conv_ref.cc to the bit.
// Threads   the caller splits channels, not rows: a call makes and reads channels [channel_begin, channel_end) only.
// Memory    dst may be b or g or x. Reads and writes exactly these channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace espalier {

inline constexpr uint32_t kShortConvTapsMax = 16;

struct ShortConvArgs {
  const float* b;
  const float* g;
  const float* x;
  size_t src_stride;
  float* u;
  size_t u_stride;
  const float* const* frames;  // (n_rows, taps)
  const float* kernel;
  const float* bias;
  float* dst;
  size_t dst_stride;
  uint32_t n_rows, dim, taps;  // taps 1 to kShortConvTapsMax
  uint32_t channel_begin, channel_end;
};
using ShortConvFn = void (*)(const ShortConvArgs&);
std::span<const Variant<ShortConvFn>> short_conv_variants();

}  // namespace espalier
