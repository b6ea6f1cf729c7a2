#include "kernels/math/apply.h"

#include <bit>

#include "kernels/math/canonical.h"
#include "kernels/math/random_values.h"
#include "kernels/math/same_bits.h"

namespace espalier {
namespace {

constexpr CanonicalFunction kAll[] = {CanonicalFunction::exp, CanonicalFunction::log, CanonicalFunction::tanh,
                                      CanonicalFunction::sigmoid, CanonicalFunction::silu};

std::vector<float> run(ApplyFn fn, CanonicalFunction function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  fn({function, x.data(), y.data(), static_cast<uint32_t>(x.size())});
  return y;
}

TEST(Apply, reference_is_the_scalar_definition) {
  const std::vector<float> x = {-3.0f, 0.25f, 7.0f};
  for (size_t i = 0; i < 3; ++i) {
    const auto ref = [&](CanonicalFunction f) { return run(apply_variants().back().fn, f, x)[i]; };
    EXPECT_EQ(ref(CanonicalFunction::exp), canonical_exp(x[i]));
    EXPECT_EQ(ref(CanonicalFunction::tanh), canonical_tanh(x[i]));
    EXPECT_EQ(ref(CanonicalFunction::sigmoid), canonical_sigmoid(x[i]));
    EXPECT_EQ(ref(CanonicalFunction::silu), canonical_silu(x[i]));
  }
  EXPECT_EQ(run(apply_variants().back().fn, CanonicalFunction::log, {2.0f})[0], canonical_log(2.0f));
}

TEST(Apply, every_variant_matches_reference_for_every_exponent) {
  RandomValues random(5);
  std::vector<float> x;
  for (uint32_t sign = 0; sign < 2; ++sign)
    for (uint32_t exponent = 0; exponent < 256; ++exponent)
      for (int i = 0; i < 64; ++i)
        x.push_back(std::bit_cast<float>(sign << 31 | exponent << 23 | (i == 0 ? 0 : random.below(1 << 23))));
  for (int i = 0; i < 50001; ++i) x.push_back(random.uniform(110.0f)), x.push_back(1.0f + random.uniform(0.5f));
  for (CanonicalFunction function : kAll) {
    const auto want = run(apply_variants().back().fn, function, x);
    for_variants(apply_variants(), [&](ApplyFn fn) { expect_same_bits(run(fn, function, x), want, "every exponent"); });
  }
}

TEST(Apply, tails_are_written_and_nothing_behind_them) {
  RandomValues random(6);
  for (uint32_t n : {0u, 1u, 3u, 7u, 9u, 17u, 31u, 33u}) {
    const std::vector<float> x = random.uniform(n, 3.0f);
    std::vector<float> want(n + 16, 5.0f);
    for (uint32_t i = 0; i < n; ++i) want[i] = canonical_tanh(x[i]);
    for_variants(apply_variants(), [&](ApplyFn fn) {
      std::vector<float> got(n + 16, 5.0f);
      fn({CanonicalFunction::tanh, x.data(), got.data(), n});
      expect_same_bits(got, want, std::to_string(n));
    });
  }
}

}  // namespace
}  // namespace espalier
