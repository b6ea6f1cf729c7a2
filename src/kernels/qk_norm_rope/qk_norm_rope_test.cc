#include "kernels/qk_norm_rope/qk_norm_rope.h"

#include <algorithm>
#include <cmath>

#include "kernels/math/random_values.h"
#include "kernels/math/same_bits.h"
#include "kernels/rope/rope_table.h"

namespace espalier {
namespace {

RopeSpec spec_of(double theta, int32_t head_dim) {
  RopeSpec spec;
  spec.theta = theta;
  spec.head_dim = head_dim;
  return spec;
}

// ---- the table

TEST(RopeTable, frequencies_are_powers_of_theta) {
  for (double theta : {1e4, 1e5, 1e6, 1e7, 500000.0})
    for (int32_t dim : {2, 8, 64, 66, 128, 256}) {
      const RopeTable table(spec_of(theta, dim));
      ASSERT_EQ(table.head_dim(), static_cast<uint32_t>(dim));
      for (int32_t i = 0; i < dim / 2; ++i) {
        const long double want = std::pow(static_cast<long double>(theta), -2.0L * i / dim);
        EXPECT_EQ(table.inverse_frequencies()[static_cast<size_t>(i)], static_cast<float>(want)) << theta << " " << i;
      }
    }
}

TEST(RopeTable, cosines_and_sines_are_those_of_the_rounded_angle) {
  const RopeTable table(spec_of(1e6, 64));
  std::vector<float> row(64);
  uint32_t differing = 0;
  for (int32_t position : {0, 1, 2, 77, 511, 4096, 32768, 131071, 1000003, 2147483647}) {
    table.fill_row(position, row.data());
    for (size_t i = 0; i < 32; ++i) {
      const long double angle = static_cast<float>(position) * table.inverse_frequencies()[i];
      const float c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
      differing += (row[i] != c) + (row[32 + i] != s);
      EXPECT_NEAR(row[i], std::cos(angle), 0x1p-25 * 1.0001);
      EXPECT_NEAR(row[32 + i], std::sin(angle), 0x1p-25 * 1.0001);
    }
  }
  EXPECT_EQ(differing, 0u);  // correctly rounded here
}

// The formula of transformers' llama3 scaling in double, with Llama 3.2's numbers.
TEST(RopeTable, llama3_scaling_follows_its_three_bands) {
  RopeSpec spec = spec_of(500000.0, 64);
  const RopeTable plain(spec);
  spec.factor = 32, spec.low_freq_factor = 1, spec.high_freq_factor = 4, spec.original_context = 8192;
  const RopeTable scaled(spec);
  int bands[3] = {};
  for (size_t i = 0; i < 32; ++i) {
    const double inv = plain.inverse_frequencies()[i], wavelength = 2 * M_PI / inv;
    double want = inv;
    if (wavelength > 8192.0) {
      want = inv / 32, ++bands[0];
    } else if (wavelength > 8192.0 / 4) {
      const double smooth = (8192 / wavelength - 1) / 3;
      want = (1 - smooth) * inv / 32 + smooth * inv, ++bands[1];
    } else {
      ++bands[2];
    }
    EXPECT_EQ(scaled.inverse_frequencies()[i], static_cast<float>(want)) << i;
  }
  for (int b : bands) EXPECT_GT(b, 0);
}

TEST(RopeTable, divisors_divide_the_frequencies) {
  RopeSpec spec = spec_of(500000.0, 8);
  const RopeTable plain(spec);
  spec.divisors = {1.0f, 2.0f, 3.0f, 32.0f};
  const RopeTable divided(spec);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(divided.inverse_frequencies()[i], plain.inverse_frequencies()[i] / spec.divisors[i]);
}

// ---- the kernel

struct Heads {
  uint32_t n_rows = 3, n_heads = 3, dim;
  bool norm, interleaved;
  std::vector<float> src, gain, rope;

  Heads(uint32_t d, bool n, bool i) : dim(d), norm(n), interleaved(i) {
    RandomValues random(d);
    src = random.uniform(size_t{n_rows} * (n_heads * d + 4), 3.0f);
    gain = random.uniform(d, 2.0f);
    rope.resize(size_t{n_rows} * d);
    const int32_t positions[] = {0, 5, 1000};
    RopeTable(spec_of(1e6, static_cast<int32_t>(d))).fill(positions, rope.data());
  }
  std::vector<float> run(QkNormRopeFn fn, float scale) const {
    std::vector<float> dst = src;  // in place
    fn({.src = dst.data(), .src_stride = n_heads * dim + 4, .dst = dst.data(), .dst_stride = n_heads * dim + 4,
        .rope = rope.data(), .gain = norm ? gain.data() : nullptr, .eps = 1e-6f, .scale = scale, .interleaved = interleaved,
        .n_rows = n_rows, .n_heads = n_heads, .head_dim = dim});
    return dst;
  }
};

TEST(QkNormRope, reference_is_near_plain_double_loops) {
  for (uint32_t dim : {2u, 8u, 64u, 80u})
    for (bool norm : {false, true})
      for (bool interleaved : {false, true}) {
        const Heads s(dim, norm, interleaved);
        const auto got = s.run(qk_norm_rope_variants().back().fn, attention_q_scale(dim));
        for (uint32_t r = 0; r < 3; ++r)
          for (uint32_t h = 0; h < 3; ++h) {
            const size_t at = r * (3 * dim + 4) + h * dim;
            double squares = 0;
            for (uint32_t i = 0; i < dim; ++i) squares += double{s.src[at + i]} * s.src[at + i];
            const double scale = norm ? 1 / std::sqrt(squares / dim + 1e-6f) : 1;
            const auto x = [&](uint32_t i) { return s.src[at + i] * scale * (norm ? double{s.gain[i]} : 1.0); };
            for (uint32_t i = 0; i < dim / 2; ++i) {
              const uint32_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + dim / 2;
              const double c = s.rope[r * dim + i], sn = s.rope[r * dim + dim / 2 + i];
              const double size = (std::fabs(x(a)) + std::fabs(x(b))) / std::sqrt(dim);
              const double bound = size * (dim / 16 + 16) * 0x1p-24;
              ASSERT_NEAR(got[at + a], (x(a) * c - x(b) * sn) / std::sqrt(dim), bound);
              ASSERT_NEAR(got[at + b], (x(b) * c + x(a) * sn) / std::sqrt(dim), bound);
            }
          }
      }
}

TEST(QkNormRope, every_variant_matches_reference) {
  for (uint32_t dim : {2u, 4u, 6u, 8u, 16u, 24u, 30u, 32u, 34u, 64u, 66u, 80u, 96u, 128u, 256u})
    for (bool norm : {false, true})
      for (bool interleaved : {false, true}) {
        const Heads s(dim, norm, interleaved);
        for (float scale : {1.0f, attention_q_scale(dim)}) {
          const auto want = s.run(qk_norm_rope_variants().back().fn, scale);
          for_variants(qk_norm_rope_variants(),
                       [&](QkNormRopeFn fn) { expect_same_bits(s.run(fn, scale), want, "dim " + std::to_string(dim)); });
        }
      }
}

// Interleaved pairs are half-split pairs of a permuted head.
TEST(QkNormRope, interleaved_is_half_split_of_a_permuted_head) {
  const Heads s(64, false, true);
  Heads permuted(64, false, false);
  const auto index = [](size_t i) { return i < 32 ? 2 * i : 2 * (i - 32) + 1; };
  for (size_t r = 0; r < 3; ++r)
    for (size_t h = 0; h < 3; ++h)
      for (size_t i = 0; i < 64; ++i) permuted.src[r * 196 + h * 64 + i] = s.src[r * 196 + h * 64 + index(i)];
  const auto a = s.run(qk_norm_rope_variants().back().fn, 1.0f), b = permuted.run(qk_norm_rope_variants().back().fn, 1.0f);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(a[196 + 64 + index(i)], b[196 + 64 + i]);
}

}  // namespace
}  // namespace espalier
