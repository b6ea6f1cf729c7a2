// The definition of attention, in plain loops over the keys of one query row at a time.
#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_scratch.h"
#include "kernels/math/canonical.h"

namespace espalier {
namespace {

constexpr uint32_t kHeadDimMax = 256;

struct Key {
  uint32_t position;
  const std::byte* block;
  uint32_t lane;
};

// What is known of some splits of one query row: l = 0 where they hold no key.
struct Part {
  float m = 0.0f, l = 0.0f;
  float o[kHeadDimMax] = {};
};

Key key_at(const AttentionArgs& a, const AttentionItem& item, uint32_t position, uint32_t slot, bool held) {
  const AttentionPages& pages = a.sequences[item.sequence];
  const uint32_t index = held ? position : slot;
  const std::byte* page = (held ? pages.held : pages.fresh)[index / kKvPagePositions];
  return {position, page + (held ? a.held_offset : a.fresh_offset) + item.kv_head * a.layout.bytes, index % kKvPagePositions};
}

// The keys of a row in one split, by ascending position.
uint32_t keys_of(const AttentionArgs& a, const AttentionItem& item, const AttentionRow& row, uint32_t split, Key* keys) {
  const uint32_t begin = split * kAttentionSplit, end = begin + kAttentionSplit;
  uint32_t n = 0;
  for (uint32_t p = begin; p < end && p < item.held; ++p) keys[n++] = key_at(a, item, p, 0, true);
  for (uint32_t r = 0; r < row.run_count; ++r) {
    const AttentionRun& run = a.runs[row.run_begin + r];
    for (uint32_t i = 0; i < run.count; ++i)
      if (run.position + i >= begin && run.position + i < end)
        keys[n++] = key_at(a, item, run.position + i, run.slot + i, false);
  }
  return n;
}

float score(const KvLayout& l, const Key& key, const float* q) {
  Sum16 sum;
  for (uint32_t d = 0; d < l.head_dim; ++d) {
    const size_t i = (size_t{key.lane / 16} * l.head_dim + d) * 16 + key.lane % 16;
    if (l.type == KvType::f16)
      sum.add_product(d, q[d], f16_to_f32(reinterpret_cast<const uint16_t*>(key.block)[i]));
    else
      sum.add_product(d, q[d], static_cast<float>(reinterpret_cast<const int8_t*>(key.block)[i]));
  }
  if (l.type == KvType::f16) return sum.total();
  return sum.total() * reinterpret_cast<const float*>(key.block + l.k_scale_offset)[key.lane];
}

void add_value(const KvLayout& l, const Key& key, float p, float* o) {
  const std::byte* v = key.block + l.v_offset;
  const size_t first = size_t{key.lane} * l.head_dim;
  if (l.type == KvType::i8) p *= reinterpret_cast<const float*>(key.block + l.v_scale_offset)[key.lane];
  for (uint32_t d = 0; d < l.head_dim; ++d) {
    const float x = l.type == KvType::f16 ? f16_to_f32(reinterpret_cast<const uint16_t*>(v)[first + d])
                                          : static_cast<float>(reinterpret_cast<const int8_t*>(v)[first + d]);
    o[d] = std::fma(p, x, o[d]);
  }
}

Part attend_split(const AttentionArgs& a, const AttentionItem& item, const AttentionRow& row, const float* q, uint32_t split) {
  Key keys[kAttentionSplit];
  float scores[kAttentionSplit];
  const uint32_t n = keys_of(a, item, row, split, keys);
  Part part;
  if (n == 0) return part;
  part.m = -std::numeric_limits<float>::infinity();
  for (uint32_t i = 0; i < n; ++i) {
    scores[i] = score(a.layout, keys[i], q);
    part.m = scores[i] > part.m ? scores[i] : part.m;
  }
  Sum16 sum;
  for (uint32_t i = 0; i < n; ++i) {
    const float p = canonical_exp(scores[i] - part.m);
    sum.add(keys[i].position, p);
    add_value(a.layout, keys[i], p, part.o);
  }
  part.l = sum.total();
  return part;
}

// total, of the splits so far, becomes that of one more.
void merge(Part& total, const Part& next, uint32_t dim) {
  if (next.l == 0.0f) return;
  if (total.l == 0.0f) {
    total = next;
    return;
  }
  const float m = total.m > next.m ? total.m : next.m;
  const float w_total = canonical_exp(total.m - m), w_next = canonical_exp(next.m - m);
  total.m = m;
  total.l = std::fma(next.l, w_next, total.l * w_total);
  for (uint32_t d = 0; d < dim; ++d) total.o[d] = std::fma(next.o[d], w_next, total.o[d] * w_total);
}

float* partial_at(const AttentionArgs& a, const AttentionItem& item, uint32_t query, uint32_t split) {
  const size_t index = size_t{query} * item.partial_splits + (split - item.partial_first);
  return a.partials + item.partial_begin + index * attention_partial_floats(a.shape.head_dim);
}

void attend_query(const AttentionArgs& a, const AttentionItem& item, uint32_t query) {
  const uint32_t group = a.shape.n_heads / a.shape.n_kv_heads, dim = a.shape.head_dim;
  const AttentionRow& row = a.rows[item.row_begin + query / group];
  const size_t head = size_t{item.kv_head} * group + query % group;
  const float* q = a.q + row.call_row * a.q_stride + head * dim;
  const size_t m_at = attention_partial_floats(dim) - 16;
  Part total;
  for (uint32_t s = item.split_begin; s < item.split_end; ++s) {
    Part part;
    if (item.merge) {
      const float* src = partial_at(a, item, query, s);
      for (uint32_t d = 0; d < dim; ++d) part.o[d] = src[d];
      part.m = src[m_at];
      part.l = src[m_at + 1];
    } else {
      part = attend_split(a, item, row, q, s);
    }
    if (!item.partial || item.merge) {
      merge(total, part, dim);
      continue;
    }
    float* dst = partial_at(a, item, query, s);
    for (uint32_t d = 0; d < dim; ++d) dst[d] = part.o[d];
    dst[m_at] = part.m;
    dst[m_at + 1] = part.l;
  }
  if (item.partial && !item.merge) return;
  float* dst = a.dst + row.call_row * a.dst_stride + head * dim;
  for (uint32_t d = 0; d < dim; ++d) dst[d] = total.o[d] / total.l;
}

}  // namespace

void attention_ref(const AttentionArgs& args, const AttentionItem& item, void*) {
  const uint32_t queries = (item.row_end - item.row_begin) * (args.shape.n_heads / args.shape.n_kv_heads);
  for (uint32_t query = 0; query < queries; ++query) attend_query(args, item, query);
}

}  // namespace espalier
