#include "kernels/rms_norm/rms_norm.h"

#include <cmath>

#include "kernels/add/add.h"
#include "kernels/math/random_values.h"
#include "kernels/math/same_bits.h"

namespace espalier {
namespace {

constexpr uint32_t kDims[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 100, 576, 2048};

struct Input {
  uint32_t n_rows, dim;
  std::vector<float> src, addend, gain;
};
Input input(uint32_t n_rows, uint32_t dim) {
  RandomValues random(dim * 8 + n_rows);
  return {n_rows, dim, random.uniform(size_t{n_rows} * (dim + 3), 4.0f), random.uniform(size_t{n_rows} * (dim + 3), 4.0f),
          random.uniform(dim, 2.0f)};
}
RmsNormArgs args_of(const Input& in, std::vector<float>& dst) {
  return {.src = in.src.data(), .src_stride = in.dim + 3, .gain = in.gain.data(), .dst = dst.data(), .dst_stride = in.dim + 5,
          .n_rows = in.n_rows, .dim = in.dim, .eps = 1e-5f};
}
std::vector<float> canvas(const Input& in) { return std::vector<float>(size_t{in.n_rows} * (in.dim + 5), 77.0f); }

TEST(RmsNorm, reference_is_near_plain_double_loops) {
  for (uint32_t dim : kDims) {
    const Input in = input(3, dim);
    std::vector<float> dst = canvas(in);
    rms_norm_variants().back().fn(args_of(in, dst));
    for (uint32_t r = 0; r < 3; ++r) {
      double squares = 0;
      for (uint32_t i = 0; i < dim; ++i) squares += double{in.src[r * (dim + 3) + i]} * in.src[r * (dim + 3) + i];
      const double scale = 1 / std::sqrt(squares / dim + 1e-5f);
      // Each chain has dim/16 rounded steps, the combination 4, the rest 6, all on positive terms; a square root halves them.
      const double bound = (dim / 16 + 10) * 0x1p-24;
      for (uint32_t i = 0; i < dim; ++i) {
        const double want = in.src[r * (dim + 3) + i] * scale * in.gain[i];
        ASSERT_NEAR(dst[r * (dim + 5) + i], want, std::fabs(want) * bound);
      }
    }
  }
}

TEST(RmsNorm, every_variant_matches_reference) {
  for (uint32_t dim : kDims)
    for (uint32_t n_rows : {0u, 1u, 3u}) {
      const Input in = input(n_rows, dim);
      std::vector<float> want = canvas(in);
      rms_norm_variants().back().fn(args_of(in, want));
      for_variants(rms_norm_variants(), [&](RmsNormFn fn) {
        std::vector<float> got = canvas(in);
        fn(args_of(in, got));
        if (n_rows > 0) expect_same_bits(got, want, "dim " + std::to_string(dim));  // the space between rows too
      });
    }
}

TEST(RmsNorm, an_addend_gives_the_bits_of_add_and_then_norm) {
  for (uint32_t dim : kDims) {
    const Input in = input(2, dim);
    std::vector<float> sum = canvas(in), want = canvas(in);
    add_variants().back().fn({.a = in.src.data(), .a_stride = dim + 3, .b = in.addend.data(), .b_stride = dim + 3,
                              .dst = sum.data(), .dst_stride = dim + 5, .n_rows = 2, .dim = dim});
    RmsNormArgs plain = args_of(in, want);
    plain.src = sum.data();
    plain.src_stride = dim + 5;
    rms_norm_variants().back().fn(plain);
    for_variants(rms_norm_variants(), [&](RmsNormFn fn) {
      std::vector<float> got = canvas(in), got_sum = canvas(in);
      RmsNormArgs args = args_of(in, got);
      args.addend = in.addend.data();
      args.addend_stride = dim + 3;
      args.sum = got_sum.data();
      args.sum_stride = dim + 5;
      fn(args);
      expect_same_bits(got_sum, sum, "sum, dim " + std::to_string(dim));
      expect_same_bits(got, want, "dim " + std::to_string(dim));
    });
  }
}

TEST(RmsNorm, works_in_place_and_passes_non_finite_values_on) {
  Input in = input(1, 65);
  in.src[40] = NAN;
  std::vector<float> want = canvas(in);
  rms_norm_variants().back().fn(args_of(in, want));
  for_variants(rms_norm_variants(), [&](RmsNormFn fn) {
    std::vector<float> row(in.src.begin(), in.src.begin() + 65);
    RmsNormArgs args = args_of(in, row);
    args.src = row.data();
    fn(args);
    for (float x : row) EXPECT_NE(x, x);
  });
}

TEST(Add, every_variant_matches_reference) {
  for (uint32_t dim : kDims) {
    const Input in = input(3, dim);
    const auto args_for = [&](std::vector<float>& dst) {
      return AddArgs{.a = in.src.data(), .a_stride = dim + 3, .b = in.addend.data(), .b_stride = dim + 3, .dst = dst.data(),
                     .dst_stride = dim + 5, .n_rows = 3, .dim = dim};
    };
    std::vector<float> want = canvas(in);
    add_variants().back().fn(args_for(want));
    EXPECT_EQ(want[0], in.src[0] + in.addend[0]);
    for_variants(add_variants(), [&](AddFn fn) {
      std::vector<float> got = canvas(in);
      fn(args_for(got));
      expect_same_bits(got, want, "dim " + std::to_string(dim));
    });
  }
}

}  // namespace
}  // namespace espalier
