#include "kernels/linear/linear.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "kernels/linear/linear_cases.h"

namespace espalier {
namespace {

using cases::Case;

std::string describe(const Case& c) {
  return form_name(c.form) + " " + std::to_string(c.form.rows) + " x " + std::to_string(c.form.cols) + ", " +
         std::to_string(c.n_rows) + " rows, kind " + std::to_string(static_cast<int>(c.kind)) + ", tiles of " +
         std::to_string(c.plan.tile_rows(c.n_rows, c.form)) + ", seed " + std::to_string(c.seed);
}

size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  size_t n = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); i++) n += std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  return n;
}

// The activation code of row r, input i, found without the kernels' own arithmetic of tiles.
struct CodeReader {
  explicit CodeReader(const QuantizedRows& rows) : q(rows) {
    for (uint32_t tile = 0, row = 0; tile < q.n_tiles; tile++) {
      const uint32_t size = q.n_rows / q.n_tiles + (tile < q.n_rows % q.n_tiles ? 1 : 0);
      for (uint32_t t = 0; t < size; t++) place.push_back({row, size, t});
      row += size;
    }
  }
  int code(uint32_t r, uint32_t i) const {
    const Place& p = place[r];
    return q.codes[size_t{p.first} * q.stride + (i / 4 * p.size + p.lane) * 4 + i % 4];
  }
  size_t group(uint32_t r, uint32_t g) const { return size_t{place[r].first} * q.groups + g * place[r].size + place[r].lane; }
  struct Place {
    uint32_t first, size, lane;
  };
  const QuantizedRows& q;
  std::vector<Place> place;
};

// Double sums of dequantised weights times dequantised activations. The fp32 result rounds once for each scale product and
// once for each fma: with n groups (2n with offsets) at most (n + 1) u of the sum of the terms' sizes, and bias and residual
// round once each; products below the normal range lose at most one subnormal step each.
void expect_near_double_sums(const Case& c) {
  SCOPED_TRACE(describe(c));
  const PackedMatrix weights = cases::make_matrix(c);
  const cases::Quantized q(c, Isa::portable, cases::make_rows(c).data());
  Case plain = c;
  plain.bias = plain.residual = false;
  const std::vector<float> dst = cases::run_linear(plain, weights, q.rows, pick(linear_variants(), Isa::portable));
  const CodeReader reader(q.rows);
  std::vector<std::vector<float>> w(c.form.rows, std::vector<float>(c.form.cols));
  for (uint32_t o = 0; o < c.form.rows; o++) unpack_row(weights, o, w[o].data());
  const double terms = 2.0 * q.rows.groups * (c.form.offset ? 2 : 1) + 2;
  for (uint32_t r = 0; r < c.n_rows; r++)
    for (uint32_t o = 0; o < c.form.rows; o++) {
      double sum = 0, size = 0;
      for (uint32_t i = 0; i < c.form.cols; i++) {
        const double x = double{q.rows.scales[reader.group(r, i / c.form.group)]} * reader.code(r, i);
        sum += x * w[o][i];
        size += std::fabs(x) * (std::fabs(w[o][i]) + 256.0 * (c.form.offset ? std::fabs(w[o][i]) : 0.0));
      }
      // unpack_row rounds q * s + b once; its parts may be up to 256 times larger than the value where they cancel.
      const double bound = terms * FLT_EPSILON * size + c.form.cols * 256.0 * 128 * double{FLT_TRUE_MIN};
      ASSERT_NEAR(dst[size_t{r} * c.form.rows + o], sum, bound) << "row " << r << ", output " << o;
    }
}

TEST(Linear, portable_is_within_the_derived_bound_of_double_sums) {
  for (uint32_t form = 0; form < 12; form++)
    for (uint32_t cols : {4u, 100u, 192u, 576u}) {
      Case c{};
      c.form = {
          65,        cols, static_cast<uint8_t>(form & 1 ? 4 : 8), static_cast<uint8_t>(32u << form / 2 % 3), ScaleType::f16,
          form >= 6, 0};
      c.n_rows = 5;
      c.kind = static_cast<cases::Kind>(form % 2);
      c.panel_split = 9;
      c.seed = form;
      expect_near_double_sums(c);
    }
}

TEST(Linear, every_variant_has_the_bits_of_the_portable_one) {
  const std::vector<Isa> isas = available_isas();
  size_t runs = 0;
  cases::for_each_case(1, [&](const Case& c) {
    const PackedMatrix weights = cases::make_matrix(c);
    const std::vector<float> x = cases::make_rows(c);
    const cases::Quantized reference(c, Isa::portable, x.data());
    const std::vector<float> expected = cases::run_linear(c, weights, reference.rows, pick(linear_variants(), Isa::portable));
    for (Isa isa : isas) {
      if (isa == Isa::portable) continue;
      const cases::Quantized q(c, isa, x.data());
      const size_t bytes = quantized_bytes(c.n_rows, c.form.cols, c.form.group);
      ASSERT_EQ(std::memcmp(q.memory.memory.get(), reference.memory.memory.get(), bytes), 0)
          << isa_name(isa) << " quantises otherwise: " << describe(c);
      ASSERT_EQ(differing(cases::run_linear(c, weights, q.rows, pick(linear_variants(), isa)), expected), 0u)
          << isa_name(isa) << ": " << describe(c);
      runs++;
    }
  });
  RecordProperty("runs", static_cast<int>(runs));
}

// The same row alone, in any company, in any tile, and with panels dealt out one by one.
TEST(Linear, a_row_does_not_depend_on_the_others) {
  for (Isa isa : available_isas())
    for (uint32_t form = 0; form < 4; form++) {
      Case c{};
      c.form = {192, 576, static_cast<uint8_t>(form & 1 ? 4 : 8), 32, ScaleType::f16, form >= 2, 0};
      c.n_rows = 37;
      c.panel_split = 1;
      c.seed = 1000 + form;
      const PackedMatrix weights = cases::make_matrix(c);
      const std::vector<float> x = cases::make_rows(c);
      const LinearFn linear = pick(linear_variants(), isa);
      const cases::Quantized all(c, isa, x.data());
      const std::vector<float> together = cases::run_linear(c, weights, all.rows, linear);
      Case one = c;
      one.n_rows = 1;
      one.panel_split = 100;
      for (uint32_t r = 0; r < c.n_rows; r++) {
        const cases::Quantized alone(one, isa, x.data() + r * 576);
        const std::vector<float> dst = cases::run_linear(one, weights, alone.rows, linear);
        ASSERT_EQ(std::memcmp(dst.data(), together.data() + r * 192, 192 * sizeof(float)), 0) << isa_name(isa) << " row " << r;
      }
    }
}

TEST(Linear, a_row_that_is_not_finite_gives_nan_in_its_outputs_alone) {
  for (Isa isa : available_isas())
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity()})
      for (uint8_t hadamard : {0, 64}) {
        Case c{};
        c.form = {70, 192, 8, 64, ScaleType::f16, false, hadamard};
        c.n_rows = 9;
        c.panel_split = 2;
        c.seed = 3;
        const PackedMatrix weights = cases::make_matrix(c);
        std::vector<float> x = cases::make_rows(c);
        const LinearFn linear = pick(linear_variants(), isa);
        const cases::Quantized clean(c, isa, x.data());
        const std::vector<float> expected = cases::run_linear(c, weights, clean.rows, linear);
        x[4 * 192 + 100] = bad;
        const cases::Quantized q(c, isa, x.data());
        const std::vector<float> dst = cases::run_linear(c, weights, q.rows, linear);
        for (uint32_t r = 0; r < c.n_rows; r++)
          for (uint32_t o = 0; o < 70; o++) {
            if (r == 4)
              ASSERT_TRUE(std::isnan(dst[r * 70 + o])) << isa_name(isa) << " output " << o;
            else
              ASSERT_EQ(dst[r * 70 + o], expected[r * 70 + o]);
          }
      }
}

TEST(Linear, residual_may_be_the_destination) {
  Case c{};
  c.form = {100, 128, 8, 128, ScaleType::f32, false, 0};
  c.n_rows = 7;
  c.panel_split = 2;
  const PackedMatrix weights = cases::make_matrix(c);
  const cases::Quantized q(c, Isa::portable, cases::make_rows(c).data());
  for (Isa isa : available_isas()) {
    std::vector<float> dst(700, 0.25f), residual(700, 0.25f), other(700);
    cases::Aligned scratch(linear_scratch_bytes(7));
    const LinearFn linear = pick(linear_variants(), isa);
    linear({&weights, &q.rows, 0, 2, dst.data(), 100, nullptr, dst.data(), 100, scratch.memory.get(), &c.plan});
    linear({&weights, &q.rows, 0, 2, other.data(), 100, nullptr, residual.data(), 100, scratch.memory.get(), &c.plan});
    EXPECT_EQ(differing(dst, other), 0u) << isa_name(isa);
  }
}

TEST(Linear, writes_only_its_own_panels) {
  Case c{};
  c.form = {150, 64, 4, 32, ScaleType::f16, false, 0};
  c.n_rows = 3;
  const PackedMatrix weights = cases::make_matrix(c);
  const cases::Quantized q(c, Isa::portable, cases::make_rows(c).data());
  for (Isa isa : available_isas()) {
    std::vector<float> dst(3 * 160, 42.0f);  // stride 160: ten floats past each row belong to somebody else
    cases::Aligned scratch(linear_scratch_bytes(3));
    pick(linear_variants(), isa)({&weights, &q.rows, 1, 3, dst.data(), 160, nullptr, nullptr, 0, scratch.memory.get(), &c.plan});
    for (uint32_t r = 0; r < 3; r++)
      for (uint32_t o = 0; o < 160; o++) ASSERT_EQ(dst[r * 160 + o] == 42.0f, o < 64 || o >= 150) << isa_name(isa) << " " << o;
  }
}

TEST(Linear, no_rows_do_nothing) {
  Case c{};
  c.form = {64, 64, 8, 64, ScaleType::f16, false, 0};
  const PackedMatrix weights = cases::make_matrix(c);
  cases::Aligned memory(64), scratch(linear_scratch_bytes(0));
  const QuantizedRows rows = quantized_view(memory.memory.get(), 0, c.form, 6);
  float dst = 5;
  for (Isa isa : available_isas())
    pick(linear_variants(), isa)({&weights, &rows, 0, 1, &dst, 64, nullptr, nullptr, 0, scratch.memory.get(), &c.plan});
  EXPECT_EQ(dst, 5);
}

TEST(LinearPlan, defaults_are_valid_and_nonsense_is_not) {
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx_vnni, Isa::avx512_vnni, Isa::amx_int8, Isa::neon_dotprod})
    EXPECT_TRUE(valid(default_linear_plan(isa)));
  LinearPlan plan;
  plan.tile_rows_wide = 9;
  EXPECT_FALSE(valid(plan));
  plan = {};
  plan.chunk_inputs_narrow = 64;
  EXPECT_FALSE(valid(plan));
}

TEST(Quantize, codes_are_the_nearest_and_scales_are_a_over_127) {
  for (Isa isa : available_isas())
    for (uint32_t cols : {4u, 5u, 37u, 128u, 200u, 576u})
      for (uint8_t group : {32, 64, 128}) {
        Case c{};
        c.form = {64, cols, 8, group, ScaleType::f16, false, 0};
        c.n_rows = 11;
        c.seed = cols + group;
        const std::vector<float> x = cases::make_rows(c);
        const cases::Quantized q(c, isa, x.data());
        const CodeReader reader(q.rows);
        for (uint32_t r = 0; r < c.n_rows; r++)
          for (uint32_t first = 0, g = 0; first < cols; first += group, g++) {
            const uint32_t end = std::min<uint32_t>(cols, first + group);
            float a = 0;
            int sum = 0;
            for (uint32_t i = first; i < end; i++) a = std::max(a, std::fabs(x[r * cols + i]));
            const size_t at = reader.group(r, g);
            ASSERT_EQ(q.rows.scales[at], a / 127.0f);
            for (uint32_t i = first; i < end; i++) {
              const int code = reader.code(r, i);
              ASSERT_LE(std::abs(code), 127);
              // Half a step, and what the two roundings of x * (127 / a) can move a code near the middle.
              ASSERT_LE(std::fabs(double{x[r * cols + i]} - code * (double{a} / 127)),
                        double{a} / 127 * (0.5 + 127 * 2 * FLT_EPSILON));
              sum += code;
            }
            for (uint32_t i = end; i < q.rows.padded_cols && end == cols; i++) ASSERT_EQ(reader.code(r, i), 0);
            ASSERT_EQ(q.rows.sums[at], static_cast<float>(sum));
            ASSERT_EQ(q.rows.corrections[at], -128 * sum);
          }
      }
}

TEST(Quantize, rounds_ties_to_even_and_keeps_tiny_groups_apart) {
  Case c{};
  c.form = {64, 128, 8, 32, ScaleType::f16, false, 0};
  c.n_rows = 1;
  std::vector<float> x(128, 0.0f);
  x[0] = 127.0f, x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -0.5f, x[5] = -1.5f, x[6] = -127.0f;
  x[32] = 0x1p-100f;    // the smallest that counts
  x[64] = 0x1.fp-101f;  // the largest that does not
  for (Isa isa : available_isas()) {
    const cases::Quantized q(c, isa, x.data());
    const int expected[] = {127, 0, 2, 2, 0, -2, -127};
    for (int i = 0; i < 7; i++) EXPECT_EQ(q.rows.codes[i], expected[i]) << isa_name(isa) << " " << i;
    EXPECT_EQ(q.rows.codes[32], 127);
    EXPECT_EQ(q.rows.scales[1], 0x1p-100f / 127.0f);
    EXPECT_EQ(q.rows.codes[64], 0);
    EXPECT_EQ(q.rows.scales[2], 0.0f);
  }
}

}  // namespace
}  // namespace espalier
