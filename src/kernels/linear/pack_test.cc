#include "kernels/linear/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/linear/linear_cases.h"

namespace espalier {
namespace {

class Rows final : public FloatRows {
 public:
  Rows(uint32_t cols, std::vector<float> w) : cols_(cols), w_(std::move(w)) {}
  Status read(uint32_t row, std::span<float> dst) const override {
    std::memcpy(dst.data(), w_.data() + size_t{row} * cols_, cols_ * sizeof(float));
    return {};
  }
  float at(uint32_t row, uint32_t i) const { return w_[size_t{row} * cols_ + i]; }

 private:
  uint32_t cols_;
  std::vector<float> w_;
};

Rows random_rows(uint32_t rows, uint32_t cols, uint64_t seed) {
  cases::Random random(seed);
  std::vector<float> w(size_t{rows} * cols);
  for (float& x : w) x = random.uniform() * 0.1f;
  return {cols, std::move(w)};
}

TEST(CaseGenerator, numbers_are_spread_evenly_and_differ) {
  cases::Random random(1);
  double sum = 0, squares = 0, smallest = 1, largest = -1;
  std::vector<float> seen;
  for (int i = 0; i < 10000; i++) {
    const float x = random.uniform();
    sum += x, squares += double{x} * x;
    smallest = std::min(smallest, double{x}), largest = std::max(largest, double{x});
    seen.push_back(x);
  }
  EXPECT_NEAR(sum / 10000, 0, 5 / std::sqrt(3.0 * 10000));
  EXPECT_NEAR(squares / 10000, 1.0 / 3, 0.02);
  EXPECT_LT(smallest, -0.99);
  EXPECT_GT(largest, 0.99);
  std::sort(seen.begin(), seen.end());
  EXPECT_GT(std::unique(seen.begin(), seen.end()) - seen.begin(), 9900);
}

TEST(PackedForm, refuses_what_the_kernels_cannot_run) {
  const PackedForm good{64, 64, 8, 32, ScaleType::f16, false, 64};
  EXPECT_TRUE(validate(good).ok());
  const auto refused = [&](auto change) {
    PackedForm form = good;
    change(form);
    return !validate(form).ok();
  };
  EXPECT_TRUE(refused([](PackedForm& f) { f.rows = 0; }));
  EXPECT_TRUE(refused([](PackedForm& f) { f.cols = 0; }));
  EXPECT_TRUE(refused([](PackedForm& f) { f.cols = 0xffffffffu; }));
  EXPECT_TRUE(refused([](PackedForm& f) { f.bits = 5; }));
  EXPECT_TRUE(refused([](PackedForm& f) { f.group = 16; }));
  EXPECT_TRUE(refused([](PackedForm& f) { f.hadamard = 32; }));
  EXPECT_TRUE(refused([](PackedForm& f) { f.cols = 96; }));
  EXPECT_TRUE(refused([](PackedForm& f) { f.scale_type = static_cast<ScaleType>(3); }));
}

TEST(PackedForm, sizes_follow_the_layout) {
  EXPECT_EQ(packed_bytes({64, 128, 8, 128, ScaleType::f16, false, 0}), 64u * 128 + 128);
  EXPECT_EQ(packed_bytes({65, 128, 8, 32, ScaleType::f32, true, 0}), 2u * 4 * (64 * 32 + 512));
  EXPECT_EQ(packed_bytes({64, 100, 8, 64, ScaleType::f16, false, 0}), 64u * 100 + 2 * 128);
  EXPECT_EQ(packed_bytes({64, 100, 4, 64, ScaleType::f16, true, 0}), 64u * 104 / 2 + 2 * 256);
  EXPECT_EQ(bits_per_weight({64, 128, 8, 128, ScaleType::f16, false, 0}), 8.125);
  EXPECT_EQ(bits_per_weight({64, 128, 4, 32, ScaleType::f16, false, 0}), 4.5);
  // The largest form does not overflow.
  EXPECT_EQ(packed_bytes({kPackedDimMax, kPackedDimMax, 8, 32, ScaleType::f32, true, 0}),
            (uint64_t{1} << 48) / 2048 * (2048 + 512));
}

TEST(PackedView, refuses_another_length) {
  const PackedForm form{64, 128, 8, 128, ScaleType::f16, false, 0};
  const std::vector<uint8_t> bytes(packed_bytes(form) + 1);
  EXPECT_TRUE(packed_view(form, bytes.data(), packed_bytes(form), nullptr).ok());
  EXPECT_FALSE(packed_view(form, bytes.data(), packed_bytes(form) + 1, nullptr).ok());
  EXPECT_FALSE(packed_view(form, bytes.data(), packed_bytes(form) - 1, nullptr).ok());
}

// The bytes of the header's description, written out a second time.
TEST(Pack, bytes_lie_as_the_header_says) {
  for (uint8_t bits : {4, 8})
    for (bool offset : {false, true}) {
      cases::Case c{};
      c.form = {70, 100, bits, 64, ScaleType::f16, offset, 0};
      c.seed = 9;
      const PackedMatrix m = cases::make_matrix(c);
      std::vector<uint8_t> codes(100);
      std::vector<float> scales(2), offsets(offset ? 2 : 0);
      const size_t block = bits == 8 ? 4 : 8, codes0 = 64 / block * 256, tail = offset ? 256 : 128;
      const size_t codes1 = (36 + block - 1) / block * 256, panel = codes0 + codes1 + 2 * tail;
      ASSERT_EQ(panel_bytes(c.form), panel);
      for (uint32_t row : {0u, 1u, 63u, 64u, 69u}) {
        ASSERT_TRUE(cases::CaseCodes(c).read(row, {codes, scales, offsets}).ok());
        const uint8_t* const p = m.data + row / 64 * panel;
        const uint32_t o = row % 64;
        for (uint32_t i = 0; i < 100; i++) {
          const uint8_t* const group = i < 64 ? p : p + codes0 + tail;
          const uint32_t j = i % 64;
          const int held = bits == 8
                               ? group[j / 4 * 256 + o * 4 + j % 4]
                               : (j % 8 < 4 ? group[j / 8 * 256 + o * 4 + j % 4] & 15 : group[j / 8 * 256 + o * 4 + j % 4] >> 4);
          ASSERT_EQ(held, codes[i]) << "row " << row << " input " << i;
        }
        for (uint32_t g = 0; g < 2; g++) {
          uint16_t half;
          std::memcpy(&half, p + (g == 0 ? codes0 : codes0 + tail + codes1) + 2 * o, 2);
          ASSERT_EQ(f16_to_f32(half), scales[g]);
          if (!offset) continue;
          std::memcpy(&half, p + (g == 0 ? codes0 : codes0 + tail + codes1) + 128 + 2 * o, 2);
          ASSERT_EQ(f16_to_f32(half), offsets[g]);
        }
      }
      // Padding: outputs past the last have scale 0 and the code of 0.
      const uint8_t* const last = m.data + panel;
      EXPECT_EQ(last[6 * 4], offset ? 0 : bits == 8 ? 128 : 0x88);
      EXPECT_EQ(last[codes0 + 2 * 6], 0);
    }
}

TEST(Pack, unpacked_rows_are_scale_times_code_plus_offset) {
  for (int form = 0; form < 12; form++) {
    cases::Case c{};
    c.form = {66, 100, static_cast<uint8_t>(form & 1 ? 4 : 8), 32, static_cast<ScaleType>(form / 2 % 3), form >= 6, 0};
    c.seed = static_cast<uint64_t>(form);
    const PackedMatrix m = cases::make_matrix(c);
    std::vector<uint8_t> codes(100);
    std::vector<float> scales(4), offsets(c.form.offset ? 4 : 0), row(100), embedded(100);
    for (uint32_t r = 0; r < 66; r++) {
      ASSERT_TRUE(cases::CaseCodes(c).read(r, {codes, scales, offsets}).ok());
      unpack_row(m, r, row.data());
      embed_row(m, r, embedded.data());
      for (uint32_t i = 0; i < 100; i++) {
        const float s = scales[i / 32];
        const float w = c.form.offset ? std::fma(static_cast<float>(codes[i]), s, offsets[i / 32])
                                      : s * static_cast<float>(codes[i] - (c.form.bits == 8 ? 128 : 8));
        ASSERT_EQ(row[i], w);
        ASSERT_EQ(embedded[i], w);
      }
    }
  }
}

// Distance of a float weight to what is held: half a step of the rounded scale, or the little that clamping takes off where the
// scale was rounded down (8 bits: s * 127 misses max|w| by at most 2^-11 of it), or where the range has no +8.
TEST(Pack, float_rows_are_held_within_half_a_step) {
  for (int form = 0; form < 8; form++) {
    const bool offset = (form & 2) != 0;
    const uint8_t bits = form & 1 ? 4 : 8;
    const PackedForm f{67, 192, bits, static_cast<uint8_t>(form & 4 ? 128 : 32), ScaleType::f16, offset, 0};
    const Rows rows = random_rows(67, 192, static_cast<uint64_t>(form));
    PackError error;
    Result<PackedMatrix> m = pack(rows, f, &error);
    ASSERT_TRUE(m.ok());
    std::vector<float> held(192);
    double error_squares = 0, weight_squares = 0;
    for (uint32_t r = 0; r < 67; r++) {
      unpack_row(*m, r, held.data());
      for (uint32_t first = 0; first < 192; first += f.group) {
        const uint32_t n = std::min<uint32_t>(f.group, 192 - first);
        float low = rows.at(r, first), high = low;
        for (uint32_t i = first; i < first + n; i++) low = std::min(low, rows.at(r, i)), high = std::max(high, rows.at(r, i));
        const double largest = std::max(high, -low), steps = offset ? (bits == 8 ? 255 : 15) : bits == 8 ? 127 : 8;
        const double step = (offset ? high - low : largest) / steps;
        // Rounded ends move by 2^-11 of themselves; a symmetric int4 code stops at 7 on the side away from the extreme.
        const double end = offset ? (std::fabs(low) + (high - low)) * 0x1p-10 : largest * 0x1p-10;
        const double slack = step / 2 + end + (!offset && bits == 4 ? step / 2 : 0);
        for (uint32_t i = first; i < first + n; i++) {
          ASSERT_NEAR(held[i], rows.at(r, i), slack) << form_name(f) << " row " << r << " input " << i;
          error_squares += (double{held[i]} - rows.at(r, i)) * (double{held[i]} - rows.at(r, i));
          weight_squares += double{rows.at(r, i)} * rows.at(r, i);
        }
      }
    }
    EXPECT_NEAR(error.relative_rms(), std::sqrt(error_squares / weight_squares), 1e-6);
    EXPECT_GT(error.relative_rms(), bits == 8 ? 0.0005 : 0.01);
    EXPECT_LT(error.relative_rms(), bits == 8 ? 0.01 : 0.12);
  }
}

TEST(Pack, hadamard_is_orthogonal_and_an_embedding_comes_back) {
  std::vector<float> x(128), y;
  cases::Random random(4);
  for (float& v : x) v = random.uniform();
  y = x;
  block_hadamard(y.data(), 128);
  double squares_x = 0, squares_y = 0;
  for (int i = 0; i < 128; i++) squares_x += double{x[i]} * x[i], squares_y += double{y[i]} * y[i];
  EXPECT_NEAR(squares_x, squares_y, squares_x * 1e-6);
  for (int k = 0; k < 64; k++) {  // the definition: signs by the parity of common bits
    double sum = 0;
    for (int i = 0; i < 64; i++) sum += (__builtin_popcount(static_cast<unsigned>(i & k)) % 2 == 0 ? 1 : -1) * double{x[i]};
    EXPECT_NEAR(y[k], sum / 8, 1e-5);
  }
  block_hadamard(y.data(), 128);
  for (int i = 0; i < 128; i++) EXPECT_NEAR(y[i], x[i], 1e-6);

  const Rows rows = random_rows(10, 192, 5);
  Result<PackedMatrix> m = pack(rows, {10, 192, 8, 64, ScaleType::f16, false, 64});
  ASSERT_TRUE(m.ok());
  std::vector<float> held(192);
  for (uint32_t r = 0; r < 10; r++) {
    embed_row(*m, r, held.data());
    for (uint32_t i = 0; i < 192; i++)
      EXPECT_NEAR(held[i], rows.at(r, i), 0.004);  // 64 errors of at most s / 2, s < 0.06 / 127 * 4
  }
}

TEST(Pack, panels_may_be_packed_in_any_order_with_the_same_bytes) {
  const Rows rows = random_rows(200, 128, 6);
  const PackedForm form{200, 128, 4, 64, ScaleType::f16, true, 0};
  PackError whole_error, part_error;
  Result<PackedMatrix> whole = pack(rows, form, &whole_error);
  ASSERT_TRUE(whole.ok());
  Result<PackTarget> target = allocate_packed(form);
  ASSERT_TRUE(target.ok());
  for (uint32_t p : {2u, 0u, 3u, 1u}) ASSERT_TRUE(pack_panels(rows, *target, p, p + 1, &part_error).ok());
  const PackedMatrix parts = finish(std::move(target).value());
  EXPECT_EQ(std::memcmp(parts.data, whole->data, packed_bytes(form)), 0);
  EXPECT_NEAR(part_error.relative_rms(), whole_error.relative_rms(), 1e-12);
}

TEST(Pack, zero_rows_stay_zero_and_bad_weights_are_refused_by_name) {
  const PackedForm form{3, 64, 8, 32, ScaleType::f16, false, 0};
  std::vector<float> w(3 * 64, 0.0f);
  PackError error;
  Result<PackedMatrix> m = pack(Rows(64, w), form, &error);
  ASSERT_TRUE(m.ok());
  EXPECT_EQ(error.relative_rms(), 0);
  std::vector<float> row(64, 1.0f);
  unpack_row(*m, 2, row.data());
  for (float x : row) EXPECT_EQ(x, 0.0f);

  w[2 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  m = pack(Rows(64, w), form);
  ASSERT_FALSE(m.ok());
  EXPECT_NE(m.status().message().find("row 2: weight 5"), std::string::npos) << m.status().message();
  w[2 * 64 + 5] = 1e9f;  // / 127 is past fp16
  m = pack(Rows(64, w), form);
  ASSERT_FALSE(m.ok());
  EXPECT_NE(m.status().message().find("row 2"), std::string::npos) << m.status().message();
  PackedForm wide = form;
  wide.scale_type = ScaleType::bf16;
  EXPECT_TRUE(pack(Rows(64, w), wide).ok());
}

class OneCode final : public CodedRows {
 public:
  OneCode(uint8_t code, float scale, float offset) : code_(code), scale_(scale), offset_(offset) {}
  Status read(uint32_t, const CodedRow& dst) const override {
    for (uint8_t& c : dst.codes) c = code_;
    for (float& s : dst.scales) s = scale_;
    for (float& b : dst.offsets) b = offset_;
    return {};
  }

 private:
  uint8_t code_;
  float scale_, offset_;
};

TEST(Pack, coded_rows_that_the_form_cannot_hold_are_refused) {
  const PackedForm form{1, 32, 4, 32, ScaleType::f16, true, 0};
  EXPECT_TRUE(pack(OneCode(15, 0.5f, -1.0f), form).ok());
  EXPECT_FALSE(pack(OneCode(16, 0.5f, -1.0f), form).ok());
  EXPECT_FALSE(pack(OneCode(15, 0.1f, -1.0f), form).ok()) << "0.1 is not a half";
  EXPECT_FALSE(pack(OneCode(15, 0.5f, 0.1f), form).ok());
  EXPECT_FALSE(pack(OneCode(15, std::numeric_limits<float>::infinity(), 0.0f), form).ok());
  EXPECT_FALSE(pack(OneCode(1, 0.5f, 0.0f), {1, 64, 8, 64, ScaleType::f16, false, 64}).ok()) << "codes cannot be rotated";
}

}  // namespace
}  // namespace espalier
