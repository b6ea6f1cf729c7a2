#include "kernels/table_dot/table_dot.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/math/random_values.h"
#include "kernels/math/same_bits.h"

namespace espalier {
namespace {

// Rows of a type, one byte off any alignment where the type allows it to be.
std::vector<std::byte> table_of(TableType type, const std::vector<float>& values) {
  std::vector<std::byte> out(1);
  for (float f : values) {
    const size_t at = out.size(), n = type == TableType::f32 ? 4 : 2;
    const uint16_t h = type == TableType::bf16 ? f32_to_bf16(f) : f32_to_f16(f);
    out.resize(at + n);
    std::memcpy(&out[at], type == TableType::f32 ? static_cast<const void*>(&f) : &h, n);
  }
  return out;
}

float read_back(TableType type, float f) {
  if (type == TableType::f32) return f;
  return type == TableType::bf16 ? bf16_to_f32(f32_to_bf16(f)) : f16_to_f32(f32_to_f16(f));
}

TEST(TableDot, every_variant_matches_reference_and_double_sums) {
  RandomValues random(8);
  for (TableType type : {TableType::f32, TableType::f16, TableType::bf16})
    for (uint32_t dim : {1u, 15u, 16u, 17u, 64u, 100u, 256u}) {
      constexpr uint32_t kRows = 23;
      std::vector<float> values(kRows * dim), x(dim);
      for (float& v : values) v = random.uniform(3.0f);
      for (float& v : x) v = random.uniform(2.0f);
      values[0] = 1e-41f;   // subnormal
      values[dim] = -0.0f;
      const std::vector<std::byte> table = table_of(type, values);
      const std::vector<int32_t> ids = {22, 0, 7, 7, 1};
      for (const Variant<TableDotFn>& variant : table_dot_variants()) {
        if (!isa_available(variant.isa)) continue;
        std::vector<float> all(kRows), some(ids.size());
        variant.fn({table.data() + 1, type, nullptr, x.data(), all.data(), kRows, dim});
        variant.fn({table.data() + 1, type, ids.data(), x.data(), some.data(), static_cast<uint32_t>(ids.size()), dim});
        for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(std::bit_cast<uint32_t>(some[i]), std::bit_cast<uint32_t>(all[static_cast<size_t>(ids[i])]));
        std::vector<float> expected(kRows);
        table_dot_variants().back().fn({table.data() + 1, type, nullptr, x.data(), expected.data(), kRows, dim});
        for (uint32_t r = 0; r < kRows; ++r) {
          EXPECT_EQ(std::bit_cast<uint32_t>(all[r]), std::bit_cast<uint32_t>(expected[r])) << isa_name(variant.isa) << " dim " << dim << " row " << r;
          double sum = 0, size = 0;
          for (uint32_t c = 0; c < dim; ++c) {
            const double term = double{read_back(type, values[r * dim + c])} * double{x[c]};
            sum += term;
            size += std::fabs(term);
          }
          EXPECT_NEAR(double{all[r]}, sum, (dim / 16 + 6) * 0x1p-24 * size + 1e-40);
        }
      }
    }
}

}  // namespace
}  // namespace espalier
