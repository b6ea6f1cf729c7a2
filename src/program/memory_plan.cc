#include "program/memory_plan.h"

#include <algorithm>

namespace espalier {
namespace {

constexpr int32_t kForever = INT32_MAX;

struct Lives {
  std::vector<int32_t> last_use;  // by ValueId: index of the last op that touches it; kNone: absent
};

bool runs_in(int32_t op_segment, int32_t segment) { return segment == kNone || op_segment == segment; }

Lives find_lives(const Function& f, int32_t segment) {
  Lives lives{std::vector<int32_t>(f.values.size(), kNone)};
  for (size_t i = 0; i < f.ops.size(); ++i) {
    if (!runs_in(f.ops[i].segment, segment)) continue;
    for (const auto* list : {&f.ops[i].in, &f.ops[i].out})
      for (ValueId v : *list)
        if (v != kNone) lives.last_use[static_cast<size_t>(v)] = static_cast<int32_t>(i);
  }
  // An edge is read when the segment ends. A tap is copied out by the op that writes it, so it extends no life.
  for (const Port& out : f.outputs)
    if (out.name.starts_with("edge.") && runs_in(out.segment, segment)) lives.last_use[static_cast<size_t>(out.value)] = kForever;
  return lives;
}

class Slots {
 public:
  explicit Slots(MemoryPlan& plan) : plan_(plan) {}
  void take(ValueId v, int32_t width) {
    // The narrowest free slot that fits, else the widest free one grows.
    int32_t best = kNone;
    for (int32_t s : free_)
      if (best == kNone || better(s, best, width)) best = s;
    if (best == kNone) {
      best = static_cast<int32_t>(plan_.slot_width.size());
      plan_.slot_width.push_back(0);
    } else {
      free_.erase(std::find(free_.begin(), free_.end(), best));
    }
    give(v, best, width);
  }
  void give(ValueId v, int32_t slot, int32_t width) {
    plan_.slot[static_cast<size_t>(v)] = slot;
    int32_t& w = plan_.slot_width[static_cast<size_t>(slot)];
    w = std::max(w, width);
  }
  void release(ValueId v) { free_.push_back(plan_.slot[static_cast<size_t>(v)]); }

 private:
  bool better(int32_t a, int32_t b, int32_t width) const {
    const int32_t wa = plan_.slot_width[static_cast<size_t>(a)], wb = plan_.slot_width[static_cast<size_t>(b)];
    if ((wa >= width) != (wb >= width)) return wa >= width;
    return wa >= width ? wa < wb : wa > wb;
  }
  MemoryPlan& plan_;
  std::vector<int32_t> free_;
};

}  // namespace

int64_t MemoryPlan::width() const {
  int64_t sum = 0;
  for (int32_t w : slot_width) sum += w;
  return sum;
}

MemoryPlan plan_memory(const Function& f, int32_t segment) {
  MemoryPlan plan;
  plan.slot.assign(f.values.size(), kNone);
  const Lives lives = find_lives(f, segment);
  Slots slots(plan);
  const auto width = [&](ValueId v) { return f.values[static_cast<size_t>(v)].width; };
  for (const Port& in : f.inputs)
    if (runs_in(in.segment, segment) && plan.slot[static_cast<size_t>(in.value)] == kNone && lives.last_use[static_cast<size_t>(in.value)] != kNone)
      slots.take(in.value, width(in.value));
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    if (!runs_in(op.segment, segment)) continue;
    const auto dies_here = [&](ValueId v) { return lives.last_use[static_cast<size_t>(v)] == static_cast<int32_t>(i); };
    ValueId reused = kNone;
    if (op.kind() == OpKind::add && dies_here(op.in[0])) {
      reused = op.in[0];
      slots.give(op.out[0], plan.slot[static_cast<size_t>(reused)], width(op.out[0]));
    }
    for (ValueId v : op.out)
      if (v != kNone && plan.slot[static_cast<size_t>(v)] == kNone) slots.take(v, width(v));
    std::vector<ValueId> dead;
    for (const auto* list : {&op.in, &op.out})
      for (ValueId v : *list)
        if (v != kNone && v != reused && dies_here(v) && std::find(dead.begin(), dead.end(), v) == dead.end()) dead.push_back(v);
    for (ValueId v : dead) slots.release(v);
  }
  return plan;
}

}  // namespace espalier
