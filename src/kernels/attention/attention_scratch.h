// How a running item uses its scratch; the plan sizes it, the vector variants fill it. Plain constants and one struct, so that
// variant sources may include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier {

// Query rows (row, head of the group) of one item: scores of a split stay in L2 (64 · 512 floats are 128 KiB).
constexpr uint32_t kAttentionQueryRows = 64;

// V rows that several groups of queries share as fp32: 8 KiB at 64 dims.
constexpr uint32_t kAttentionValueRows = 32;

struct AttentionScratch {
  size_t queries, scores, tile, fresh, values, block_out, total_out, floats;  // offsets in floats
};
constexpr AttentionScratch attention_scratch(uint32_t query_rows, uint32_t head_dim) {
  const size_t dim = (head_dim + 15u) / 16u * 16u, rows = query_rows;
  AttentionScratch s{};
  s.queries = 0;                         // (rows, dim) zero padded
  s.scores = s.queries + rows * dim;     // (rows, 512) by position
  s.tile = s.scores + rows * 512;        // (dim, 16) a K tile widened to fp32
  s.fresh = s.tile + dim * 16;           // (rows, 16) scores of a tile by slot
  s.values = s.fresh + rows * 16;        // (32, dim) V rows widened to fp32
  s.block_out = s.values + kAttentionValueRows * dim;  // (rows, dim) o of a split
  s.total_out = s.block_out + rows * dim;  // (rows, dim) merged o, then (rows) m and (rows) l of split and total
  s.floats = s.total_out + rows * dim + 4 * ((rows + 15) / 16 * 16);
  return s;
}

// Floats of one partial: o (dim), m, l, padded to 16.
constexpr size_t attention_partial_floats(uint32_t head_dim) { return (head_dim + 15u) / 16u * 16u + 16u; }

}  // namespace espalier
