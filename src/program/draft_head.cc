#include "program/draft_head.h"

#include <cstring>
#include <utility>

#include "base/half.h"

namespace espalier {

FloatTable float_table(std::vector<float> values, int32_t rows, int32_t cols) {
  const auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  return {FloatTable::Type::f32, rows, cols, reinterpret_cast<const std::byte*>(owner->data()), owner};
}

void read_row(const FloatTable& table, int32_t row, float* out) {
  const size_t n = static_cast<size_t>(table.cols);
  if (table.type == FloatTable::Type::f32) {
    std::memcpy(out, table.data + static_cast<size_t>(row) * n * sizeof(float), n * sizeof(float));
    return;
  }
  const std::byte* at = table.data + static_cast<size_t>(row) * n * sizeof(uint16_t);
  const bool bf16 = table.type == FloatTable::Type::bf16;
  for (size_t i = 0; i < n; ++i, at += sizeof(uint16_t)) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    out[i] = bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

}  // namespace espalier
