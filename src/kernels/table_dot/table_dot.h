// Dot products of table rows with one vector:  dst[i] = table[ids[i]] · x     (ids null: rows 0 … n_rows − 1)
//
// Shapes    table (·, dim) in fp32, fp16 or bf16, row-major, any alignment; x (dim); dst (n_rows).
// Numerics  canonical (rules 2.5): sum16 of rounded products, no fma; rows are widened exactly. Every variant equals
//           table_dot_ref.cc to the bit.
// Threads   the caller splits rows.
// Cost      one read of the rows; bandwidth bound for tables that lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace espalier {

enum class TableType : uint8_t { f32, f16, bf16 };

struct TableDotArgs {
  const std::byte* table;
  TableType type;
  const int32_t* ids;  // null: rows in order
  const float* x;
  float* dst;
  uint32_t n_rows, dim;
};
using TableDotFn = void (*)(const TableDotArgs&);
std::span<const Variant<TableDotFn>> table_dot_variants();

}  // namespace espalier
