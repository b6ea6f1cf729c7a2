// A program compiled for the CPU: schedules, packed weights, scratch. See cpu_unit.h.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/thread_team.h"
#include "kernels/add/add.h"
#include "kernels/attention/attention.h"
#include "kernels/head/head.h"
#include "kernels/linear/linear.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope_table.h"
#include "kernels/short_conv/short_conv.h"
#include "kernels/swiglu/swiglu.h"
#include "units/cpu/cpu_state.h"
#include "units/cpu/schedule.h"

namespace espalier::cpu {

// The variants that this machine runs.
struct Kernels {
  explicit Kernels(Isa isa);
  RmsNormFn rms_norm;
  AddFn add;
  SwigluFn swiglu;
  QkNormRopeFn qk_norm_rope;
  ShortConvFn short_conv;
  AttentionFn attention;
  QuantizeFn quantize;
  LinearFn linear;
  HeadScanFn head_scan;
};

// Scratch of a model, kept between calls.
struct Scratch {
  std::vector<Buffer> slots;        // by memory plan slot: (rows, width)
  std::vector<Buffer> sets;         // by quantised set of a phase
  std::vector<Buffer> threads;      // by thread: linear and attention scratch
  Buffer partials, rope, logits, head_sets;
  std::vector<std::shared_ptr<CallFrames>> frames;  // a pool: those that no state holds are used again
};

class CpuModel : public Model {
 public:
  CpuModel(const Program& program, PackedWeights weights, KvType kv, Isa isa, std::shared_ptr<ThreadTeam> team);
  const Program& program() const override { return program_; }
  const PackedWeights& weights() const { return weights_; }
  Result<std::unique_ptr<State>> make_state() override;
  Result<Ticket> submit(const Call& call) override;
  Result<CallStats> wait(Ticket ticket) override;

 private:
  friend class CallRunner;
  Status begin(const Call& call);
  const Schedule& schedule(FunctionId id);
  std::shared_ptr<CallFrames> take_frames(size_t rows);
  // cos and sin of a position: (head_dim). Those of the first positions are kept once they are known: sines are a tenth of a small
  // model's call.
  void copy_rope_row(size_t table, int32_t position, float* dst);

  Program program_;
  PackedWeights weights_;
  StateLayout layout_;
  Kernels kernels_;
  LinearPlan linear_plan_;
  std::shared_ptr<ThreadTeam> team_;
  std::vector<RopeTable> ropes_;
  struct RopeRows {
    std::vector<float> rows;  // (positions, head_dim)
    std::vector<bool> known;
  };
  std::vector<RopeRows> rope_rows_;  // by table
  std::vector<std::vector<float>> conv_kernels_;  // by WeightId: (taps, channels), transposed from (channels, taps)
  std::map<std::pair<Role, int32_t>, Schedule> schedules_;
  Scratch scratch_;
  std::mutex mutex_;  // one call at a time
  Ticket ticket_ = 0;
  Status result_;
  CallStats stats_;
};

}  // namespace espalier::cpu
