// Where K and V of a position lie, and how they are rounded when they are made (rules 2.2).
//
// A page holds 128 positions. Within it, K and V of one layer and one KV head are a *block* of KvLayout::bytes bytes; how the
// blocks of layers and heads stand in a page is the owner's choice ([layer][head] in the CPU unit). In a block, lane = position
// mod 128:
//   K          [lane / 16][head_dim][lane % 16]   elements: 16 positions side by side, so that a score is 16 plain sums
//   V          [lane][head_dim]                   elements
//   K scales   [lane] fp32                        int8 only
//   V scales   [lane] fp32                        int8 only
// Rows of a call that are not committed yet lie in blocks of the same form, with their slot in place of the position.
//
// fp16      nearest even; above 65,504 infinity.
// int8      for each position and head: a = max|x|; a < 2⁻¹⁰⁰: zeros and scale 0; else code = rne(x · (127 ÷ a)), scale =
//           a ÷ 127. What kv_load reads gives the same codes and scale when it is stored again: the largest code is ±127, and
//           with s the fp32 number next to a ÷ 127, fp32(127 · s) is no further from 127 · s than a is, so s comes out again.
//           A NaN or an infinity makes the scale NaN: the row's readers become NaN.
// Threads   functions touch one lane of one block only (K of other lanes shares its cache lines).
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier {

enum class KvType : uint8_t { f16, i8 };
inline constexpr uint32_t kKvPagePositions = 128;

struct KvLayout {
  KvType type;
  uint32_t head_dim;
  uint32_t element_bytes;                         // 2 or 1
  size_t v_offset, k_scale_offset, v_scale_offset;  // bytes from the start of a block; K at 0
  size_t bytes;                                   // of a block, a multiple of 64
};
// Requires: head_dim > 0.
KvLayout kv_layout(KvType type, uint32_t head_dim);

// Rounds k, v (head_dim) and writes them to a lane (0 to 127). block: 64-byte aligned.
void kv_store(const KvLayout& layout, std::byte* block, uint32_t lane, const float* k, const float* v);
// The rounded values of a lane, exactly.
void kv_load(const KvLayout& layout, const std::byte* block, uint32_t lane, float* k, float* v);
// Copies n lanes as they are: a commit. Lanes may lie in one block if the ranges do not overlap or dst_lane < src_lane.
void kv_copy(const KvLayout& layout, const std::byte* src_block, uint32_t src_lane, std::byte* dst_block, uint32_t dst_lane,
             uint32_t n);

}  // namespace espalier
