#include "kernels/swiglu/swiglu.h"

#include <bit>
#include <cmath>

#include "kernels/math/canonical.h"
#include "kernels/math/random_values.h"
#include "kernels/math/same_bits.h"

namespace espalier {
namespace {

TEST(Swiglu, reference_is_near_plain_double_loops) {
  RandomValues random(1);
  for (int i = 0; i < 10000; ++i) {
    const float g = random.uniform(20.0f), u = random.uniform(3.0f);
    float dst = 0;
    swiglu_variants().back().fn({&g, 1, &u, 1, &dst, 1, 1, 1});
    const double want = g / (1 + std::exp(-double{g})) * u;
    // exp within 1 unit, three more roundings and the product.
    ASSERT_NEAR(dst, want, std::fabs(want) * 4 * 0x1p-23) << g;
  }
}

TEST(Swiglu, every_variant_matches_reference) {
  for (uint32_t dim : {1u, 7u, 8u, 9u, 15u, 16u, 17u, 24u, 63u, 64u, 65u, 576u}) {
    RandomValues random(dim);
    // The two halves of one product, so that strides and neighbours are those of the engine.
    const std::vector<float> both = random.uniform(size_t{3} * 2 * dim, 100.0f);
    const auto run = [&](SwigluFn fn) {
      std::vector<float> dst(size_t{3} * (dim + 4), 7.0f);
      fn({both.data(), 2 * dim, both.data() + dim, 2 * dim, dst.data(), dim + 4, 3, dim});
      return dst;
    };
    const auto want = run(swiglu_variants().back().fn);
    for_variants(swiglu_variants(), [&](SwigluFn fn) { expect_same_bits(run(fn), want, "dim " + std::to_string(dim)); });
  }
}

// Every exponent, both signs, subnormals, infinities and NaN, through the widest use of the vector exp.
TEST(Swiglu, every_variant_matches_reference_for_every_exponent) {
  RandomValues random(5);
  std::vector<float> gate;
  for (uint32_t sign = 0; sign < 2; ++sign)
    for (uint32_t exponent = 0; exponent < 256; ++exponent)
      for (int i = 0; i < 64; ++i)
        gate.push_back(std::bit_cast<float>(sign << 31 | exponent << 23 | (i == 0 ? 0 : random.below(1 << 23))));
  for (int i = 0; i < 50000; ++i) gate.push_back(random.uniform(110.0f));
  const std::vector<float> up(gate.size(), 1.0f);
  const uint32_t n = static_cast<uint32_t>(gate.size());
  const auto run = [&](SwigluFn fn) {
    std::vector<float> dst(n);
    fn({gate.data(), n, up.data(), n, dst.data(), n, 1, n});
    return dst;
  };
  const auto want = run(swiglu_variants().back().fn);
  for (uint32_t i = 0; i < n; i += 97)
    if (std::isfinite(gate[i])) {
      ASSERT_EQ(want[i], canonical_silu(gate[i]));
    }
  for_variants(swiglu_variants(), [&](SwigluFn fn) { expect_same_bits(run(fn), want, "every exponent"); });
}

}  // namespace
}  // namespace espalier
