#include <algorithm>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_scratch.h"

namespace espalier {
namespace {

// Above this a block keeps its splits together, whatever the balance between threads.
constexpr size_t kPartialFloatsMax = size_t{8} << 20;
constexpr uint32_t kItemsPerThread = 4;

// A range of plan rows of one sequence that share an item.
struct Block {
  uint32_t sequence, row_begin, row_end, split_begin, split_end;
  uint64_t work() const { return uint64_t{row_end - row_begin} * (split_end - split_begin); }
};

class Planner {
 public:
  Planner(const AttentionShape& shape, std::span<const AttentionRowIn> rows, std::span<const uint32_t> held)
      : shape_(shape), in_(rows), held_(held), slot_(rows.size()), plan_row_(rows.size()) {}

  Result<AttentionPlan> make(uint32_t threads) {
    ESPALIER_TRY(order_rows());
    ESPALIER_TRY(shape_.group ? list_groups() : list_ancestors());
    cut_blocks();
    make_items(std::max(1u, threads));
    const uint32_t group = shape_.n_heads / shape_.n_kv_heads;
    const uint32_t query_rows = std::max(kAttentionQueryRows, group);
    plan_.scratch_bytes = (attention_scratch(query_rows, shape_.head_dim).floats * sizeof(float) + 63) / 64 * 64;
    return std::move(plan_);
  }

 private:
  Status bad(size_t row, const std::string& what) const {
    return invalid("row " + std::to_string(row) + " of the call: " + what);
  }

  // Plan order: by sequence, then as given; the rank within the sequence is the slot.
  Status order_rows() {
    std::vector<uint32_t> count(held_.size() + 1, 0);
    for (size_t i = 0; i < in_.size(); ++i) {
      if (in_[i].sequence >= held_.size())
        return bad(i, "sequence " + std::to_string(in_[i].sequence) + ", expected one below " + std::to_string(held_.size()));
      if (in_[i].position < 0 || static_cast<uint32_t>(in_[i].position) < held_[in_[i].sequence])
        return bad(i, "position " + std::to_string(in_[i].position) + " is among the " +
                          std::to_string(held_[in_[i].sequence]) + " held ones");
      slot_[i] = count[in_[i].sequence + 1]++;
    }
    for (size_t s = 0; s < held_.size(); ++s) count[s + 1] += count[s];
    first_ = count;
    plan_.rows.resize(in_.size());
    for (size_t i = 0; i < in_.size(); ++i) {
      plan_row_[i] = first_[in_[i].sequence] + slot_[i];
      plan_.rows[plan_row_[i]].call_row = static_cast<uint32_t>(i);
    }
    return {};
  }

  // Adds a key behind the runs from `begin` on; neighbours become one run.
  void append(uint32_t begin, uint32_t position, uint32_t slot) {
    if (plan_.runs.size() > begin) {
      AttentionRun& last = plan_.runs.back();
      if (last.position + last.count == position && last.slot + last.count == slot) {
        ++last.count;
        return;
      }
    }
    plan_.runs.push_back({position, slot, 1});
  }

  Status list_ancestors() {
    for (size_t i = 0; i < in_.size(); ++i) {
      AttentionRow& row = plan_.rows[plan_row_[i]];
      row.run_begin = static_cast<uint32_t>(plan_.runs.size());
      if (in_[i].parent >= 0) {
        const size_t p = static_cast<size_t>(in_[i].parent);
        if (p >= i || in_[p].sequence != in_[i].sequence)
          return bad(i, "parent " + std::to_string(p) + " is not an earlier row of its sequence");
        if (in_[p].position >= in_[i].position) return bad(i, "its position is not above that of its parent");
        const AttentionRow& parent = plan_.rows[plan_row_[p]];
        for (uint32_t k = 0; k < parent.run_count; ++k) {
          const AttentionRun run = plan_.runs[parent.run_begin + k];
          plan_.runs.push_back(run);
        }
      }
      append(row.run_begin, static_cast<uint32_t>(in_[i].position), slot_[i]);
      row.run_count = static_cast<uint32_t>(plan_.runs.size()) - row.run_begin;
    }
    return {};
  }

  // All rows of a sequence share one list.
  Status list_groups() {
    std::vector<uint32_t> order;
    for (size_t s = 0; s < held_.size(); ++s) {
      order.clear();
      for (uint32_t r = first_[s]; r < first_[s + 1]; ++r) order.push_back(plan_.rows[r].call_row);
      std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return in_[a].position < in_[b].position; });
      const uint32_t begin = static_cast<uint32_t>(plan_.runs.size());
      for (size_t k = 0; k < order.size(); ++k) {
        if (k > 0 && in_[order[k]].position == in_[order[k - 1]].position)
          return bad(order[k], "another row of its group has the same position");
        append(begin, static_cast<uint32_t>(in_[order[k]].position), slot_[order[k]]);
      }
      for (uint32_t r = first_[s]; r < first_[s + 1]; ++r) {
        plan_.rows[r].run_begin = begin;
        plan_.rows[r].run_count = static_cast<uint32_t>(plan_.runs.size()) - begin;
      }
    }
    return {};
  }

  void cut_blocks() {
    const uint32_t group = shape_.n_heads / shape_.n_kv_heads;
    const uint32_t rows_max = std::max(1u, kAttentionQueryRows / group);
    for (uint32_t s = 0; s < held_.size(); ++s) {
      const uint32_t n = first_[s + 1] - first_[s];
      const uint32_t pieces = (n + rows_max - 1) / rows_max;
      for (uint32_t b = 0; b < pieces; ++b) {
        Block block{s, first_[s] + static_cast<uint32_t>(uint64_t{n} * b / pieces),
                    first_[s] + static_cast<uint32_t>(uint64_t{n} * (b + 1) / pieces), 0, 0};
        set_splits(block);
        blocks_.push_back(block);
      }
    }
  }

  void set_splits(Block& block) const {
    uint32_t least = UINT32_MAX, last = 0;
    for (uint32_t r = block.row_begin; r < block.row_end; ++r) {
      const AttentionRow& row = plan_.rows[r];
      least = std::min(least, plan_.runs[row.run_begin].position);
      const AttentionRun& end = plan_.runs[row.run_begin + row.run_count - 1];
      last = std::max(last, end.position + end.count - 1);
    }
    block.split_begin = held_[block.sequence] > 0 ? 0 : least / kAttentionSplit;
    block.split_end = last / kAttentionSplit + 1;
  }

  // One item for each block and KV head where that gives enough of them, else pieces of a block's splits with partial results.
  void make_items(uint32_t threads) {
    uint64_t work = 0;
    for (const Block& b : blocks_) work += b.work() * shape_.n_kv_heads;
    const uint64_t target = threads == 1 ? UINT64_MAX : std::max<uint64_t>(1, work / (uint64_t{threads} * kItemsPerThread));
    for (const Block& b : blocks_) {
      const uint32_t splits = b.split_end - b.split_begin;
      const size_t partial = size_t{b.row_end - b.row_begin} * (shape_.n_heads / shape_.n_kv_heads) * splits *
                             attention_partial_floats(shape_.head_dim);
      const bool cut = splits > 1 && b.work() > target && threads > 1 &&
                       plan_.partial_floats + partial * shape_.n_kv_heads <= kPartialFloatsMax;
      const uint32_t per_row = std::max<uint32_t>(1, b.row_end - b.row_begin);
      const uint32_t step = cut ? static_cast<uint32_t>(std::max<uint64_t>(1, target / per_row)) : splits;
      for (uint32_t head = 0; head < shape_.n_kv_heads; ++head) {
        AttentionItem item{.sequence = b.sequence, .held = held_[b.sequence], .row_begin = b.row_begin, .row_end = b.row_end,
                           .kv_head = head, .split_begin = b.split_begin, .split_end = b.split_end, .partial = cut,
                           .merge = false, .partial_first = b.split_begin, .partial_splits = splits,
                           .partial_begin = plan_.partial_floats};
        for (uint32_t s = b.split_begin; s < b.split_end; s += step) {
          item.split_begin = s;
          item.split_end = std::min(b.split_end, s + step);
          plan_.items.push_back(item);
        }
        if (!cut) continue;
        item.split_begin = b.split_begin;
        item.split_end = b.split_end;
        item.merge = true;
        plan_.merges.push_back(item);
        plan_.partial_floats += partial;
      }
    }
  }

  const AttentionShape shape_;
  std::span<const AttentionRowIn> in_;
  std::span<const uint32_t> held_;
  std::vector<uint32_t> slot_, plan_row_, first_;
  std::vector<Block> blocks_;
  AttentionPlan plan_;
};

}  // namespace

Result<AttentionPlan> make_attention_plan(const AttentionShape& shape, std::span<const AttentionRowIn> rows,
                                          std::span<const uint32_t> held, uint32_t threads) {
  return Planner(shape, rows, held).make(threads);
}

}  // namespace espalier
