// One call on the CPU: binds a schedule to the rows and states of the call, then runs its phases on the team.
#pragma once

#include <atomic>

#include "units/cpu/cpu_model.h"

namespace espalier::cpu {

inline constexpr uint32_t kHeadAsks = kWantArgmax | kWantLogits | kWantTopK | kWantLse;
inline constexpr uint32_t kHeadRowsMax = 64;  // rows whose logits are held at once

class CallRunner {
 public:
  CallRunner(CpuModel& model, const Schedule& schedule, const Call& call);
  // Fills Call::out and the pending rows of the states.
  Status run();
  int64_t linear_ns() const { return linear_ns_; }

 private:
  Status reserve();
  Status plan_attention();
  void bind_rows();
  void bind_taps();
  void load_inputs();
  void run_phases(uint32_t thread);
  void run_rows(const Phase& phase, uint32_t begin, uint32_t end);
  void run_row_op(const RowOp& op, uint32_t begin, uint32_t end);
  void norm(const Op& op, uint32_t begin, uint32_t end);
  void rope(const Op& op, uint32_t begin, uint32_t end);
  void keep(const Op& op, uint32_t begin, uint32_t end);
  void copy_tap(const RowOp& op, uint32_t begin, uint32_t end);
  void run_linears(const Phase& phase, std::atomic<uint32_t>& next, uint32_t thread);
  void run_conv(size_t phase, std::atomic<uint32_t>& next, uint32_t thread);
  std::vector<const float*> conv_frames(const Op& op) const;
  void run_attention(const Op& op, std::atomic<uint32_t>& next, std::atomic<uint32_t>& next_merge, uint32_t thread);
  // Head, in call_head.cc: the asking rows in blocks of at most kHeadRowsMax.
  Status reserve_head();
  void run_head(const Op& op, uint32_t thread);
  void quantise_block(const Op& op, size_t block);
  void scan_row(size_t block, uint32_t i);
  void emit_block(size_t block);
  std::span<const uint32_t> head_block(size_t block) const;
  void copy_edges();

  // Whether the team is worth waking: a phase of a small model is shorter than the barrier behind it.
  uint32_t choose_threads() const;
  void barrier() {
    if (threads_ > 1) m_.team_->barrier();
  }

  uint32_t n_rows() const { return static_cast<uint32_t>(call_.rows.size()); }
  size_t width(ValueId v) const { return static_cast<size_t>(function_.values[static_cast<size_t>(v)].width); }
  float* at(ValueId v) const { return m_.scratch_.slots[static_cast<size_t>(schedule_.memory.slot[static_cast<size_t>(v)])].floats(); }
  float* row(ValueId v, uint32_t r) const { return at(v) + r * width(v); }
  const PackedMatrix& matrix(WeightId w) const { return m_.weights_.entries[static_cast<size_t>(w)].matrix; }
  const float* vector(WeightId w) const { return w == kNone ? nullptr : m_.weights_.entries[static_cast<size_t>(w)].vector.data(); }
  CpuState& state(uint32_t r) const { return *static_cast<CpuState*>(call_.states[static_cast<size_t>(call_.rows[r].sequence)]); }

  CpuModel& m_;
  const Schedule& schedule_;
  const Call& call_;
  const Function& function_;
  const uint32_t threads_;               // 1, or all of the team
  std::vector<uint32_t> slot_;           // of each row among its state's pending rows
  std::vector<QuantizedRows> sets_;      // by set
  std::vector<const float*> rope_rows_;  // by rope: (rows, head_dim)
  std::vector<std::vector<const float*>> conv_frames_;  // by phase: (rows, taps)
  std::vector<AttentionPlan> attention_plans_;
  std::vector<AttentionShape> attention_shapes_;
  std::vector<AttentionPages> pages_;
  std::vector<std::atomic<uint32_t>> counters_;
  struct Tap {
    NamedOutput* out;
    int32_t port;
  };
  std::vector<Tap> taps_;
  std::vector<int32_t> tap_row_;  // by row: its place among the rows that want taps
  // head
  std::vector<uint32_t> asking_;  // rows
  QuantizedRows head_rows_;
  std::vector<HeadPart> parts_;   // by row of the block: all its ids as one
  std::vector<std::vector<TopEntry>> top_;
  std::vector<std::atomic<uint32_t>> head_counters_;  // two a block
  Status failure_;
  int64_t linear_ns_ = 0;
};

}  // namespace espalier::cpu
