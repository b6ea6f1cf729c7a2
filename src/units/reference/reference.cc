#include "units/reference/reference.h"

#include <cmath>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "units/reference/reference_ops.h"
#include "units/reference/reference_state.h"

namespace espalier {
namespace {

using reference::Executor;
using reference::ReferenceState;
using reference::Tensors;

class ReferenceModel : public Model {
 public:
  ReferenceModel(Program program, Tensors tensors, int threads)
      : program_(std::move(program)), tensors_(std::move(tensors)), threads_(threads) {}

  const Program& program() const override { return program_; }
  Result<std::unique_ptr<State>> make_state() override {
    return std::unique_ptr<State>(std::make_unique<ReferenceState>(program_));
  }

  Result<Ticket> submit(const Call& call) override {
    ESPALIER_TRY(check_call(program_, call));
    ESPALIER_TRY(begin(call));
    stats_ = {};
    stats_.t0_ns = now_ns();
    stats_.rows = static_cast<int32_t>(call.rows.size());
    result_ = Executor(program_, tensors_, call, threads_).run();
    stats_.t1_ns = now_ns();
    return ++ticket_;
  }

  Result<CallStats> wait(Ticket ticket) override {
    if (ticket != ticket_) return invalid("wait: this ticket is not the last call's");
    ESPALIER_TRY(result_);
    return stats_;
  }

 private:
  // All states or none: a refused row leaves what is pending as it was.
  Status begin(const Call& call) {
    std::vector<PendingRows> rows;
    std::vector<bool> fresh;
    for (size_t s = 0; s < call.states.size(); ++s) {
      auto* state = dynamic_cast<ReferenceState*>(call.states[s]);
      if (state == nullptr || &state->program() != &program_) return invalid("state " + std::to_string(s) + " belongs to another model");
      rows.push_back(state->rows);
      ESPALIER_ASSIGN(const bool replaced, rows.back().begin(call, static_cast<int32_t>(s), state->length()));
      fresh.push_back(replaced);
    }
    for (size_t s = 0; s < call.states.size(); ++s) {
      auto* state = static_cast<ReferenceState*>(call.states[s]);
      state->rows = std::move(rows[s]);
      if (fresh[s]) state->drop_pending();
    }
    return {};
  }

  Program program_;
  Tensors tensors_;
  int threads_;
  Ticket ticket_ = 0;
  Status result_;
  CallStats stats_;
};

class ReferenceUnit : public Unit {
 public:
  explicit ReferenceUnit(int threads) : threads_(threads) {}
  UnitInfo describe() const override { return {"reference", "", "fp32, plain loops: the oracle, slow"}; }
  Status accepts(const Program& program) const override { return verify(program); }

  Result<std::unique_ptr<Model>> compile(const Program& program, const WeightSet& weights) override {
    ESPALIER_TRY(verify(program));
    ESPALIER_TRY(check_weights(program, weights));
    Tensors tensors(program.weights.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const WeightSet::Entry& entry = weights.entries[i];
      if (!entry.matrix) {
        tensors[i] = entry.vector;
        continue;
      }
      tensors[i].resize(entry.matrix->rows() * entry.matrix->cols());
      entry.matrix->dequantize(0, entry.matrix->rows(), tensors[i].data());
    }
    return std::unique_ptr<Model>(std::make_unique<ReferenceModel>(program, std::move(tensors), threads_));
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<Unit> make_reference_unit(int threads) { return std::make_unique<ReferenceUnit>(std::max(1, threads)); }

}  // namespace espalier
