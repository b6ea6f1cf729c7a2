#include <cstring>

#include "base/half.h"
#include "kernels/math/canonical.h"
#include "kernels/table_dot/table_dot.h"

namespace espalier {
namespace {

float value(const TableDotArgs& a, size_t index) {
  if (a.type == TableType::f32) {
    float f;
    std::memcpy(&f, a.table + index * sizeof f, sizeof f);
    return f;
  }
  uint16_t h;
  std::memcpy(&h, a.table + index * sizeof h, sizeof h);
  return a.type == TableType::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

}  // namespace

void table_dot_ref(const TableDotArgs& a) {
  for (uint32_t i = 0; i < a.n_rows; ++i) {
    const size_t row = a.ids == nullptr ? i : static_cast<size_t>(a.ids[i]);
    Sum16 sum;
    for (uint32_t c = 0; c < a.dim; ++c) sum.add(c, value(a, row * a.dim + c) * a.x[c]);
    a.dst[i] = sum.total();
  }
}

}  // namespace espalier
