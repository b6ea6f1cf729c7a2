// One attention layer with its state, as small as it can be: for the test, the bench and the self-check.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/attention/attention.h"

namespace espalier {

// K and V of one sequence: held positions and the rows of the last call.
class HarnessState {
 public:
  HarnessState(const KvLayout& layout, uint32_t n_kv_heads) : layout_(layout), n_kv_heads_(n_kv_heads) {}

  uint32_t held() const { return held_; }
  // k, v (n_kv_heads · head_dim) of the next position.
  void append(const float* k, const float* v) { store(held_pages_, held_++, k, v); }
  void store_fresh(uint32_t slot, const float* k, const float* v) { store(fresh_pages_, slot, k, v); }
  // Slots become the next positions.
  void commit(const std::vector<uint32_t>& slots) {
    for (uint32_t slot : slots) {
      reserve(held_pages_, held_);
      for (uint32_t h = 0; h < n_kv_heads_; ++h)
        kv_copy(layout_, block(fresh_pages_, slot, h), slot % kKvPagePositions, block(held_pages_, held_, h),
                held_ % kKvPagePositions, 1);
      ++held_;
    }
  }
  AttentionPages pages() {
    reserve(fresh_pages_, 0);
    held_at_ = addresses(held_pages_);
    fresh_at_ = addresses(fresh_pages_);
    return {held_at_.data(), fresh_at_.data()};
  }
  static constexpr size_t kOffset = 128;  // as if another block stood before this layer's

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  using Pages = std::vector<std::vector<Line>>;

  void reserve(Pages& pages, uint32_t index) const {
    while (pages.size() <= index / kKvPagePositions) {
      pages.emplace_back((kOffset + n_kv_heads_ * layout_.bytes) / 64);
      // What no row has written must not matter: all bits set are NaN in fp16 and in the scales.
      std::memset(static_cast<void*>(pages.back().data()), 0xff, pages.back().size() * 64);
    }
  }
  std::byte* block(Pages& pages, uint32_t index, uint32_t head) const {
    return pages[index / kKvPagePositions][0].bytes + kOffset + head * layout_.bytes;
  }
  void store(Pages& pages, uint32_t index, const float* k, const float* v) const {
    reserve(pages, index);
    const size_t dim = layout_.head_dim;
    for (uint32_t h = 0; h < n_kv_heads_; ++h)
      kv_store(layout_, block(pages, index, h), index % kKvPagePositions, k + h * dim, v + h * dim);
  }
  static std::vector<const std::byte*> addresses(const Pages& pages) {
    std::vector<const std::byte*> at;
    for (const auto& page : pages) at.push_back(page[0].bytes);
    return at;
  }

  KvLayout layout_;
  uint32_t n_kv_heads_, held_ = 0;
  Pages held_pages_, fresh_pages_;
  std::vector<const std::byte*> held_at_, fresh_at_;
};

struct HarnessRow {
  uint32_t sequence;
  int32_t position, parent;
  std::vector<float> q, k, v;  // (n_heads · head_dim), (n_kv_heads · head_dim)
};

// The outputs (rows, n_heads · head_dim) of a call; fresh K and V stay in the states until the next call. Empty if the plan was
// refused.
inline std::vector<float> harness_attend(const AttentionShape& shape, const KvLayout& layout, AttentionFn fn,
                                         const std::vector<HarnessState*>& states, const std::vector<HarnessRow>& rows,
                                         uint32_t threads) {
  std::vector<AttentionRowIn> in;
  std::vector<uint32_t> held, slots(states.size(), 0);
  std::vector<float> q;
  for (const HarnessRow& row : rows) {
    in.push_back({row.sequence, row.position, row.parent});
    states[row.sequence]->store_fresh(slots[row.sequence]++, row.k.data(), row.v.data());
    q.insert(q.end(), row.q.begin(), row.q.end());
  }
  std::vector<AttentionPages> pages;
  for (HarnessState* state : states) held.push_back(state->held()), pages.push_back(state->pages());
  Result<AttentionPlan> plan = make_attention_plan(shape, in, held, threads);
  if (!plan.ok()) return {};
  const size_t width = size_t{shape.n_heads} * shape.head_dim;
  std::vector<float> dst(rows.size() * width, -1.0f), partials(plan->partial_floats, -2.0f);
  std::unique_ptr<std::byte[]> scratch(new (std::align_val_t(64)) std::byte[plan->scratch_bytes]);
  std::memset(scratch.get(), 0xff, plan->scratch_bytes);
  AttentionArgs args{.layout = layout, .shape = shape, .q = q.data(), .q_stride = width, .dst = dst.data(), .dst_stride = width,
                     .sequences = pages.data(), .held_offset = HarnessState::kOffset, .fresh_offset = HarnessState::kOffset,
                     .rows = plan->rows.data(), .runs = plan->runs.data(), .partials = partials.data()};
  // Backwards: items of a phase may run in any order.
  for (size_t i = plan->items.size(); i-- > 0;) fn(args, plan->items[i], scratch.get());
  for (const AttentionItem& item : plan->merges) fn(args, item, scratch.get());
  ::operator delete[](scratch.release(), std::align_val_t(64));
  return dst;
}

}  // namespace espalier
