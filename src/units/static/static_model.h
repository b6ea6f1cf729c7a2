// A program on a static unit: deals the rows of a call to windows, runs them, and gathers what they answer.
#pragma once

#include "units/static/answers.h"
#include "units/static/static_state.h"
#include "units/static/static_unit.h"
#include "units/static/window_inputs.h"
#include "units/static/window_plan.h"

namespace espalier::static_unit {

class StaticModel : public Model {
 public:
  static Result<std::unique_ptr<Model>> make(const Program& program, const WeightSet& weights, const StaticOptions& options, const MakeBackend& make_backend, bool rounds);

  const Program& program() const override { return program_; }
  Result<std::unique_ptr<State>> make_state() override { return std::unique_ptr<State>(std::make_unique<StaticState>(shape_)); }
  Result<Ticket> submit(const Call& call) override;
  Result<CallStats> wait(Ticket ticket) override;

  const StaticBackend& backend() const { return *backend_; }
  const LoweredProgram& lowered() const { return lowered_; }

 private:
  // One call in the making.
  struct Job {
    const Function* function;
    Role role;
    std::vector<StaticState*> states;
    std::vector<size_t> first_node;  // by sequence: where its rows begin among the nodes
    std::vector<PlanNode> nodes;
    std::vector<int32_t> depth;  // by node: how many of its sequence's nodes stand above it
    bool only_writes = false;    // no answers: unwritten rows get written
    bool reads = true;           // the function reads states
    const Call* call = nullptr;
    Answers* answers = nullptr;
    const StateRow& row(int32_t node) const;
  };

  StaticModel(const Program& program, const StaticOptions& options, bool rounds) : program_(program), options_(options), rounds_(rounds) {}
  Status prepare(const WeightSet& weights, const MakeBackend& make_backend);
  Result<std::vector<StaticState*>> check_states(const Call& call, const Function& function, std::vector<PendingRows>& pending) const;
  std::vector<StateRow> rows_of(const Call& call, const Function& function, int32_t sequence) const;
  Status flush(StaticState& state);
  Status run_call(const Call& call, const Function& function, std::vector<StaticState*>&& states, std::vector<PendingRows>&& pending);
  Job make_job(const Function& function, std::vector<StaticState*>&& states, bool only_writes) const;
  PlanLimits limits(const Job& job) const;
  Status run_windows(Job& job);
  Status run_window(Job& job, const PlannedWindow& window);
  WindowLayout lay_out(const Job& job, const PlannedWindow& window) const;
  FunctionSpec choose_function(const Job& job, const PlannedWindow& window, int32_t columns, WindowLayout& layout) const;
  std::vector<std::vector<float>> load_states(const Job& job, const PlannedWindow& window, const WindowLayout& layout, int32_t bucket) const;
  FrameSet written_frames(const PlannedPart& part, size_t slot, const StaticState& state, const std::vector<std::vector<float>>& states, const std::vector<NamedValues>& outputs) const;
  void store_states(const Job& job, const PlannedWindow& window, const WindowLayout& layout, int32_t bucket, std::vector<std::vector<float>>&& states, const std::vector<NamedValues>& outputs) const;
  Status gather(const Job& job, const PlannedWindow& window, const WindowLayout& layout, const LoweredFunction& f, const std::vector<NamedValues>& outputs) const;

  Program program_;
  StaticOptions options_;
  bool rounds_;
  LoweredProgram lowered_;
  HostTables tables_;
  StateShape shape_;
  std::unique_ptr<StaticBackend> backend_;
  Ticket ticket_ = 0;
  Status result_;
  CallStats stats_;
};

}  // namespace espalier::static_unit
