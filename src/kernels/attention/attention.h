// Attention core over the rows of a call:  dst[r,h] = softmax(q[r,h] · K) · V over the keys that row r sees.
//
// Keys      of a row: the held positions 0 … held − 1 of its sequence, then rows of the call: itself and its ancestors (mask
//           *ancestors*), or all rows of its sequence (mask *group*). Held keys lie in pages by position; keys of the call lie in
//           fresh pages by slot: the n-th row of a sequence in the call has slot n. A commit is kv_copy from slot to position.
// Numerics  canonical (rules 2.8), to the bit attention_ref.cc; q is fp32, rotated, and scaled already.
//             score    sum16 over d of fma(q[d], k[d], ·); int8: of codes, then × scale
//             split    positions 512b … 512b + 511 counted from 0: m = max, p = exp(score − m), l = sum16(p) with position as the
//                      index, o[d] = chain of fma(p, v[d], o) from 0 by ascending position; int8: fma(p · scale, code, o)
//             merge    splits that hold a key, ascending: M = max(m_a, m_b), w = exp(m − M), l = fma(l_b, w_b, l_a · w_a), o alike
//             result   o ÷ l
//           Only positions count, never slots, pages, blocks of rows, threads or what else is in the call.
// Threads   a plan cuts the call into items. Items of a phase run in any order on any thread; `merges` come after all `items`
//           (none unless a split range was cut). Each running item has its own scratch.
// Cost      follows the keys that are there. Rows of a sequence and the query heads of a KV head share one pass over held K.
//
//   AttentionPlan plan = *make_attention_plan(shape, rows, held, threads);      // once a call, for all layers
//   args.rows = plan.rows.data(), args.runs = plan.runs.data(), args.partials = …;  // per layer: offsets, q, dst
//   parallel over plan.items: fn(args, item, scratch);   then, if any, parallel over plan.merges: fn(args, item, scratch)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "espalier/status.h"
#include "kernels/attention/kv_page.h"
#include "kernels/isa.h"

namespace espalier {

inline constexpr uint32_t kAttentionSplit = 512;  // positions; part of the numerics

struct AttentionShape {
  uint32_t n_heads, n_kv_heads, head_dim;  // n_heads a multiple of n_kv_heads; head_dim 1 to 256
  bool group;                              // the mask
};

// A row as the caller states it. Positions are at least `held` of the sequence, rise along a path and differ in a group.
struct AttentionRowIn {
  uint32_t sequence;
  int32_t position;
  int32_t parent;  // an earlier row of this list and sequence, or -1
};

// Consecutive positions in consecutive slots.
struct AttentionRun {
  uint32_t position, slot, count;
};
// A row in plan order: by sequence, then by slot.
struct AttentionRow {
  uint32_t call_row;              // row of q and dst
  uint32_t run_begin, run_count;  // its keys of the call, ascending by position
};
struct AttentionItem {
  uint32_t sequence, held;
  uint32_t row_begin, row_end;  // plan order
  uint32_t kv_head;
  uint32_t split_begin, split_end;  // at least one
  bool partial;                     // m, l, o of each split go to partials
  bool merge;                       // second phase: the partials of these splits become dst
  uint32_t partial_first;           // the split of the block's first partial,
  uint32_t partial_splits;          // how many it has for each query row,
  size_t partial_begin;             // and where they start (floats)
};

struct AttentionPlan {
  std::vector<AttentionRow> rows;
  std::vector<AttentionRun> runs;
  std::vector<AttentionItem> items, merges;
  size_t scratch_bytes = 0;   // for each running item, 64-byte aligned
  size_t partial_floats = 0;  // one buffer for the call
};
// held: rows in each sequence's state. Refused: a parent that is not an earlier row of the sequence, positions as above.
// The number of threads shapes the items only. O(rows · path).
Result<AttentionPlan> make_attention_plan(const AttentionShape& shape, std::span<const AttentionRowIn> rows,
                                          std::span<const uint32_t> held, uint32_t threads);

struct AttentionPages {
  const std::byte* const* held;   // page p: positions 128p …; ceil(held / 128) entries
  const std::byte* const* fresh;  // page p: slots 128p …
};

struct AttentionArgs {
  KvLayout layout;
  AttentionShape shape;
  const float* q;  // (rows of the call, n_heads · head_dim)
  size_t q_stride;
  float* dst;      // (rows of the call, n_heads · head_dim)
  size_t dst_stride;
  const AttentionPages* sequences;
  size_t held_offset, fresh_offset;  // bytes from a page to this layer's block of KV head 0; head h at + h · layout.bytes
  const AttentionRow* rows;          // of the plan
  const AttentionRun* runs;
  float* partials;
};
using AttentionFn = void (*)(const AttentionArgs&, const AttentionItem&, void* scratch);
std::span<const Variant<AttentionFn>> attention_variants();

}  // namespace espalier
