// The vector form of table_dot, written once. Included by table_dot_<isa>.cc after its simd header and vload_bf16; internal linkage.
#pragma once

#include "kernels/table_dot/table_dot.h"

namespace espalier {
namespace {

constexpr uint32_t kTableStep = 16;  // the lanes of sum16

// `load`: kLanes values from an element of the row. Elements behind the last whole step come from padded copies.
template <typename T, typename Load>
inline void table_dot_rows(const TableDotArgs& a, Load load) {
  constexpr uint32_t kParts = kTableStep / static_cast<uint32_t>(kLanes);
  const uint32_t whole = a.dim / kTableStep * kTableStep, rest = a.dim - whole;
  float x_rest[kTableStep] = {};
  for (uint32_t i = 0; i < rest; ++i) x_rest[i] = a.x[whole + i];
  for (uint32_t i = 0; i < a.n_rows; ++i) {
    const size_t at = (a.ids == nullptr ? i : static_cast<size_t>(a.ids[i])) * a.dim * sizeof(T);
    const T* row = reinterpret_cast<const T*>(a.table + at);
    Vf sum[kParts];
    for (uint32_t p = 0; p < kParts; ++p) sum[p] = vzero();
    for (uint32_t c = 0; c < whole; c += kTableStep)
      for (uint32_t p = 0; p < kParts; ++p) {
        const uint32_t lane = c + p * static_cast<uint32_t>(kLanes);
        sum[p] = vadd(sum[p], vmul(load(row + lane), vload(a.x + lane)));
      }
    if (rest > 0) {
      T padded[kTableStep] = {};
      __builtin_memcpy(padded, row + whole, rest * sizeof(T));
      for (uint32_t p = 0; p < kParts; ++p) {
        const uint32_t lane = p * static_cast<uint32_t>(kLanes);
        sum[p] = vadd(sum[p], vmul(load(padded + lane), vload(x_rest + lane)));
      }
    }
    a.dst[i] = sum16(sum);
  }
}

inline void table_dot_vectors(const TableDotArgs& a) {
  switch (a.type) {
    case TableType::f32: return table_dot_rows<float>(a, [](const float* p) { return vload(p); });
    case TableType::f16: return table_dot_rows<uint16_t>(a, [](const uint16_t* p) { return vload_half(p); });
    case TableType::bf16: return table_dot_rows<uint16_t>(a, [](const uint16_t* p) { return vload_bf16(p); });
  }
}

}  // namespace
}  // namespace espalier
