#include "kernels/math/canonical.h"

#include <gtest/gtest.h>

#include "kernels/math/precise.h"
#include "kernels/math/random_values.h"

namespace espalier {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Values of every exponent and sign: `per` mantissas of each, the ends among them.
template <typename Fn>
void for_every_exponent(uint32_t per, Fn fn) {
  RandomValues random(1);
  for (uint32_t sign = 0; sign < 2; ++sign)
    for (uint32_t exponent = 0; exponent < 255; ++exponent)
      for (uint32_t i = 0; i < per; ++i) {
        const uint32_t mantissa = i == 0 ? 0 : i == 1 ? 0x7fffff : random.below(1 << 23);
        fn(std::bit_cast<float>(sign << 31 | exponent << 23 | mantissa));
      }
}

// |got − want| in units in the last place of want (of the smallest subnormal below 2^-126).
double ulps(float got, long double want) {
  int exponent = 0;
  std::frexp(static_cast<double>(want), &exponent);
  const long double unit = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::fabs((static_cast<long double>(got) - want) / unit));
}

TEST(CanonicalExp, error_is_below_one_unit_for_every_exponent) {
  double worst = 0;
  const auto check = [&](float x) {
    const long double want = std::exp(static_cast<long double>(x));
    const float got = canonical_exp(x);
    if (static_cast<float>(want) == kInf || got == kInf) {
      EXPECT_EQ(got, static_cast<float>(want)) << x;
      return;
    }
    worst = std::max(worst, ulps(got, want));
  };
  for_every_exponent(200, check);
  RandomValues random(2);
  for (int i = 0; i < 200000; ++i) check(random.uniform(110.0f));
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.4);  // the measure itself works
}

TEST(CanonicalExp, ends_are_defined) {
  EXPECT_EQ(canonical_exp(0.0f), 1.0f);
  EXPECT_EQ(canonical_exp(-0.0f), 1.0f);
  EXPECT_EQ(canonical_exp(kInf), kInf);
  EXPECT_EQ(canonical_exp(-kInf), 0.0f);
  EXPECT_EQ(canonical_exp(88.75f), kInf);
  EXPECT_LT(canonical_exp(88.72f), kInf);
  EXPECT_EQ(canonical_exp(-104.0f), 0.0f);
  EXPECT_EQ(canonical_exp(-103.9f), std::numeric_limits<float>::denorm_min());
  EXPECT_NE(canonical_exp(NAN), canonical_exp(NAN));
}

TEST(CanonicalLog, error_is_below_one_unit_for_every_exponent) {
  double worst = 0;
  const auto check = [&](float x) {
    if (x > 0) worst = std::max(worst, ulps(canonical_log(x), std::log(static_cast<long double>(x))));
  };
  for_every_exponent(400, check);
  RandomValues random(2);
  for (int i = 0; i < 200000; ++i) check(1.0f + random.uniform(0.5f));
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.4);
}

TEST(CanonicalLog, ends_are_defined) {
  EXPECT_EQ(canonical_log(1.0f), 0.0f);
  EXPECT_EQ(canonical_log(0.0f), -kInf);
  EXPECT_EQ(canonical_log(-0.0f), -kInf);
  EXPECT_EQ(canonical_log(kInf), kInf);
  for (float x : {-1.0f, -kInf, NAN, -1e-40f}) EXPECT_NE(canonical_log(x), canonical_log(x)) << x;
}

TEST(CanonicalTanh, error_and_ends) {
  double worst = 0;
  const auto check = [&](float x) { worst = std::max(worst, ulps(canonical_tanh(x), std::tanh(static_cast<long double>(x)))); };
  for_every_exponent(100, check);
  RandomValues random(2);
  for (int i = 0; i < 200000; ++i) check(random.uniform(10.0f));
  EXPECT_LT(worst, 1.5);
  EXPECT_EQ(canonical_tanh(kInf), 1.0f);
  EXPECT_EQ(canonical_tanh(-kInf), -1.0f);
  EXPECT_TRUE(std::signbit(canonical_tanh(-0.0f)));
  EXPECT_NE(canonical_tanh(NAN), canonical_tanh(NAN));
}

TEST(CanonicalSigmoid, error_and_ends_with_silu) {
  double sigmoid = 0, silu = 0;
  const auto check = [&](float x) {
    if (x < -87.0f) return;
    const long double s = 1 / (1 + std::exp(-static_cast<long double>(x)));
    sigmoid = std::max(sigmoid, ulps(canonical_sigmoid(x), s));
    silu = std::max(silu, ulps(canonical_silu(x), x * s));
  };
  for_every_exponent(100, check);
  RandomValues random(2);
  for (int i = 0; i < 200000; ++i) check(random.uniform(87.0f));
  EXPECT_LT(sigmoid, 2.5);
  EXPECT_LT(silu, 3.0);
  EXPECT_EQ(canonical_sigmoid(kInf), 1.0f);
  EXPECT_EQ(canonical_sigmoid(-kInf), 0.0f);
  EXPECT_EQ(canonical_silu(kInf), kInf);
  EXPECT_EQ(canonical_silu(-89.0f), 0.0f);
  EXPECT_LT(canonical_sigmoid(-87.5f), 0x1p-125f);
  EXPECT_LT(std::fabs(canonical_silu(-87.5f)), 0x1p-118f);
  EXPECT_NE(canonical_silu(-kInf), canonical_silu(-kInf));
}

TEST(Sum16, is_sixteen_chains_combined_by_halves) {
  Sum16 sum;
  float lanes[16] = {};
  RandomValues random(3);
  for (uint32_t i = 0; i < 53; ++i) {
    const float x = random.uniform(1.0f);
    sum.add(i, x);
    lanes[i % 16] += x;
  }
  float eight[8], four[4];
  for (int i = 0; i < 8; ++i) eight[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  EXPECT_EQ(sum.total(), (four[0] + four[2]) + (four[1] + four[3]));
}

TEST(RandomValuesGenerator, has_the_mean_and_spread_of_its_name_and_distinct_values) {
  RandomValues random(7);
  const std::vector<float> v = random.uniform(100000, 2.0f);
  double sum = 0, square = 0;
  float least = 0, most = 0;
  for (float x : v) sum += x, square += double{x} * x, least = std::min(least, x), most = std::max(most, x);
  EXPECT_NEAR(sum / 1e5, 0.0, 0.02);
  EXPECT_NEAR(square / 1e5, 4.0 / 3.0, 0.02);
  EXPECT_GE(least, -2.0f);
  EXPECT_LT(most, 2.0f);
  EXPECT_LT(least, -1.99f);
  EXPECT_GT(most, 1.99f);
  EXPECT_NE(v[0], v[1]);
  uint32_t counts[10] = {};
  for (int i = 0; i < 100000; ++i) ++counts[random.below(10)];
  for (uint32_t c : counts) EXPECT_NEAR(c, 10000, 500);
}

// ---- double precision

TEST(Precise, exp_and_log_hold_their_bounds) {
  RandomValues random(4);
  long double exp_worst = 0, log_worst = 0;
  for (int i = 0; i < 300000; ++i) {
    const double x = double{random.uniform(700.0f)} + double{random.uniform(1e-5f)};
    const long double e = std::exp(static_cast<long double>(x));
    exp_worst = std::max(exp_worst, std::fabs((precise_exp(x) - e) / e));
    const double y = i % 2 == 0 ? precise_exp(x) : 1.0 + double{random.uniform(0.6f)};
    const long double l = std::log(static_cast<long double>(y));
    if (l != 0) log_worst = std::max(log_worst, std::fabs((precise_log(y) - l) / l));
  }
  EXPECT_LT(exp_worst, 0x1p-51L);
  EXPECT_LT(log_worst, 0x1p-50L);
  EXPECT_EQ(precise_exp(0.0), 1.0);
  EXPECT_EQ(precise_log(1.0), 0.0);
}

TEST(Precise, sine_and_cosine_hold_their_bounds) {
  RandomValues random(5);
  long double absolute = 0, relative = 0;
  const auto check = [&](float x) {
    const SinCos got = precise_sincos(x);
    const long double s = std::sin(static_cast<long double>(x)), c = std::cos(static_cast<long double>(x));
    absolute = std::max({absolute, std::fabs(got.sin - s), std::fabs(got.cos - c)});
    if (s != 0) relative = std::max(relative, std::fabs((got.sin - s) / s));
  };
  for (int i = 0; i < 300000; ++i) check(std::ldexp(random.uniform(1.0f), static_cast<int>(random.below(40)) - 9));
  // fp32 values next to multiples of π/2, where the reduction cancels most.
  for (int i = 1; i < 100000; ++i) check(static_cast<float>(i * 1.5707963267948966));
  EXPECT_LT(absolute, 0x1p-51L);
  EXPECT_LT(relative, 0x1p-32L);
  EXPECT_EQ(precise_sincos(0.0f).cos, 1.0);
  EXPECT_EQ(precise_sincos(0.0f).sin, 0.0);
}

}  // namespace
}  // namespace espalier
