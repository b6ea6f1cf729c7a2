#include "kernels/short_conv/short_conv.h"

#include <cmath>

#include "kernels/math/random_values.h"
#include "kernels/math/same_bits.h"

namespace espalier {
namespace {

// Rows with parents, the state's frames before them; p is in_proj's output (b, g, x).
struct Rows {
  uint32_t n_rows, dim, taps;
  std::vector<int> parent;
  std::vector<float> p, kernel, bias, held, zero;
  bool with_bias;

  Rows(uint32_t rows, uint32_t d, uint32_t t, bool b) : n_rows(rows), dim(d), taps(t), zero(d, 0.0f), with_bias(b) {
    RandomValues random(d * 100 + t);
    p = random.uniform(size_t{3} * d * rows, 2.0f);
    kernel = random.uniform(size_t{t} * d, 1.0f);
    bias = random.uniform(d, 1.0f);
    held = random.uniform(size_t{t} * d, 2.0f);
    for (uint32_t r = 0; r < rows; ++r) parent.push_back(static_cast<int>(r) - 1 - static_cast<int>(random.below(std::min(r + 1, 3u))));
  }
  // The frame `back` steps before row r: a row of u, a frame of the state (two are held), or zeros.
  const float* frame(const std::vector<float>& u, int r, uint32_t back) const {
    while (back > 0 && r >= 0) r = parent[static_cast<size_t>(r)], --back;
    if (r >= 0) return u.data() + static_cast<size_t>(r) * dim;
    return back < 2 ? held.data() + back * dim : zero.data();
  }
  std::vector<float> run(ShortConvFn fn, uint32_t pieces, std::vector<float>* u_out = nullptr) const {
    std::vector<float> u(size_t{n_rows} * dim, 9.0f), dst(size_t{n_rows} * (dim + 2), 7.0f);
    std::vector<const float*> frames;
    for (uint32_t r = 0; r < n_rows; ++r)
      for (uint32_t t = 0; t < taps; ++t) frames.push_back(frame(u, static_cast<int>(r), taps - 1 - t));
    for (uint32_t k = 0; k < pieces; ++k)
      fn({.b = p.data(), .g = p.data() + dim, .x = p.data() + 2 * dim, .src_stride = 3 * dim, .u = u.data(), .u_stride = dim,
          .frames = frames.data(), .kernel = kernel.data(), .bias = with_bias ? bias.data() : nullptr, .dst = dst.data(),
          .dst_stride = dim + 2, .n_rows = n_rows, .dim = dim, .taps = taps, .channel_begin = dim * k / pieces,
          .channel_end = dim * (k + 1) / pieces});
    if (u_out != nullptr) *u_out = u;
    return dst;
  }
};

TEST(ShortConv, reference_is_near_plain_double_loops) {
  for (uint32_t taps : {1u, 2u, 3u, 4u, 16u}) {
    const Rows s(12, 20, taps, true);
    std::vector<float> u;
    const auto dst = s.run(short_conv_variants().back().fn, 1, &u);
    for (uint32_t r = 0; r < 12; ++r)
      for (uint32_t c = 0; c < 20; ++c) {
        EXPECT_EQ(u[r * 20 + c], s.p[r * 60 + c] * s.p[r * 60 + 40 + c]);
        double v = s.bias[c], size = std::fabs(v);
        for (uint32_t t = 0; t < taps; ++t) {
          const double term = double{s.kernel[t * 20 + c]} * s.frame(u, static_cast<int>(r), taps - 1 - t)[c];
          v += term, size += std::fabs(term);
        }
        const double want = v * s.p[r * 60 + 20 + c];
        ASSERT_NEAR(dst[r * 22 + c], want, (taps + 3) * 0x1p-24 * size * std::fabs(s.p[r * 60 + 20 + c]));
      }
  }
}

TEST(ShortConv, every_variant_matches_reference_however_channels_are_split) {
  for (uint32_t dim : {1u, 8u, 17u, 24u, 63u, 64u, 65u, 576u})
    for (uint32_t taps : {1u, 3u, 4u})
      for (bool bias : {false, true}) {
        const Rows s(9, dim, taps, bias);
        std::vector<float> want_u;
        const auto want = s.run(short_conv_variants().back().fn, 1, &want_u);
        for (uint32_t pieces : {1u, 3u})
          for_variants(short_conv_variants(), [&](ShortConvFn fn) {
            std::vector<float> u;
            expect_same_bits(s.run(fn, pieces, &u), want, "dim " + std::to_string(dim));
            expect_same_bits(u, want_u, "u");
          });
      }
}

// A row of a tree gives what it gives as the only row, its ancestors' u being frames of the state.
TEST(ShortConv, a_tree_gives_the_bits_of_serial_steps) {
  const Rows s(10, 33, 3, false);
  std::vector<float> u;
  const auto together = s.run(short_conv_variants().back().fn, 1, &u);
  for_variants(short_conv_variants(), [&](ShortConvFn fn) {
    for (uint32_t r = 0; r < 10; ++r) {
      std::vector<float> own(33), dst(33);
      const float* frames[] = {s.frame(u, static_cast<int>(r), 2), s.frame(u, static_cast<int>(r), 1), own.data()};
      const float* p = s.p.data() + r * 99;
      fn({.b = p, .g = p + 33, .x = p + 66, .src_stride = 99, .u = own.data(), .u_stride = 33, .frames = frames,
          .kernel = s.kernel.data(), .bias = nullptr, .dst = dst.data(), .dst_stride = 33, .n_rows = 1, .dim = 33, .taps = 3,
          .channel_begin = 0, .channel_end = 33});
      expect_same_bits(dst, {together.begin() + r * 35, together.begin() + r * 35 + 33}, "row " + std::to_string(r));
    }
  });
}

TEST(ShortConv, centred_frames_read_rows_to_both_sides) {
  constexpr uint32_t kRows = 6, kDim = 19;
  RandomValues random(2);
  const auto p = random.uniform(size_t{kRows} * 3 * kDim, 1.0f), kernel = random.uniform(3 * kDim, 1.0f);
  const std::vector<float> zero(kDim, 0.0f);
  for_variants(short_conv_variants(), [&](ShortConvFn fn) {
    std::vector<float> u(kRows * kDim), dst(kRows * kDim);
    std::vector<const float*> frames;
    for (int r = 0; r < static_cast<int>(kRows); ++r)
      for (int t = r - 1; t <= r + 1; ++t)
        frames.push_back(t < 0 || t >= static_cast<int>(kRows) ? zero.data() : u.data() + static_cast<size_t>(t) * kDim);
    fn({.b = p.data(), .g = p.data() + kDim, .x = p.data() + 2 * kDim, .src_stride = 3 * kDim, .u = u.data(), .u_stride = kDim,
        .frames = frames.data(), .kernel = kernel.data(), .bias = nullptr, .dst = dst.data(), .dst_stride = kDim, .n_rows = kRows,
        .dim = kDim, .taps = 3, .channel_begin = 0, .channel_end = kDim});
    for (uint32_t r = 0; r < kRows; ++r)
      for (uint32_t c = 0; c < kDim; ++c) {
        float v = kernel[c] * frames[r * 3][c];
        v = std::fma(kernel[kDim + c], frames[r * 3 + 1][c], v);
        v = std::fma(kernel[2 * kDim + c], frames[r * 3 + 2][c], v);
        ASSERT_EQ(dst[r * kDim + c], p[r * 3 * kDim + kDim + c] * v);
      }
  });
}

}  // namespace
}  // namespace espalier
