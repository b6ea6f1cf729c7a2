#include "units/cpu/cpu_model.h"

#include <algorithm>

#include "base/clock.h"
#include "base/fp_mode.h"
#include "units/cpu/call_runner.h"

namespace espalier::cpu {
namespace {

constexpr size_t kRopeKept = 16384, kRopeStep = 1024;  // positions

// Checkpoints hold (channels, taps); the kernel reads (taps, channels).
std::vector<float> transposed(const std::vector<float>& in, size_t rows, size_t cols) {
  std::vector<float> out(in.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) out[c * rows + r] = in[r * cols + c];
  return out;
}

}  // namespace

Kernels::Kernels(Isa isa)
    : rms_norm(pick(rms_norm_variants(), isa)),
      add(pick(add_variants(), isa)),
      swiglu(pick(swiglu_variants(), isa)),
      qk_norm_rope(pick(qk_norm_rope_variants(), isa)),
      short_conv(pick(short_conv_variants(), isa)),
      attention(pick(attention_variants(), isa)),
      quantize(pick(quantize_variants(), isa)),
      linear(pick(linear_variants(), isa)),
      head_scan(pick(head_scan_variants(), isa)) {}

CpuModel::CpuModel(const Program& program, PackedWeights weights, KvType kv, Isa isa, std::shared_ptr<ThreadTeam> team)
    : program_(program), weights_(std::move(weights)), layout_(state_layout(program_, kv)), kernels_(isa),
      linear_plan_(default_linear_plan(isa)), team_(std::move(team)), conv_kernels_(program.weights.size()) {
  for (const RopeSpec& spec : program_.ropes) ropes_.emplace_back(spec);
  rope_rows_.resize(ropes_.size());
  for (size_t w = 0; w < program_.weights.size(); ++w) {
    const WeightDecl& decl = program_.weights[w];
    if (decl.kind == WeightDecl::Kind::taps)
      conv_kernels_[w] = transposed(weights_.entries[w].vector, static_cast<size_t>(decl.rows), static_cast<size_t>(decl.cols));
  }
}

Result<std::unique_ptr<State>> CpuModel::make_state() { return std::unique_ptr<State>(std::make_unique<CpuState>(program_, layout_)); }

const Schedule& CpuModel::schedule(FunctionId id) {
  const std::pair key{id.role, id.segment};
  const auto found = schedules_.find(key);
  if (found != schedules_.end()) return found->second;
  return schedules_.emplace(key, make_schedule(*program_.find(id.role), id.segment, weights_)).first->second;
}

void CpuModel::copy_rope_row(size_t table, int32_t position, float* dst) {
  const size_t at = static_cast<size_t>(position), width = ropes_[table].head_dim();
  if (position < 0 || at >= kRopeKept) return ropes_[table].fill_row(position, dst);
  RopeRows& kept = rope_rows_[table];
  if (at >= kept.known.size()) {
    const size_t positions = (at / kRopeStep + 1) * kRopeStep;
    kept.rows.resize(positions * width);
    kept.known.resize(positions);
  }
  float* const row = kept.rows.data() + at * width;
  if (!kept.known[at]) ropes_[table].fill_row(position, row);
  kept.known[at] = true;
  std::copy_n(row, width, dst);
}

std::shared_ptr<CallFrames> CpuModel::take_frames(size_t rows) {
  std::shared_ptr<CallFrames> frames;
  for (const auto& candidate : scratch_.frames)
    if (candidate.use_count() == 1) frames = candidate;
  if (frames == nullptr) {
    frames = std::make_shared<CallFrames>();
    scratch_.frames.push_back(frames);
  }
  if (!frames->memory.reserve(layout_.frame_floats * rows * sizeof(float))) return nullptr;
  frames->rows = rows;
  return frames;
}

// All states or none: a refused row leaves what is pending as it was.
Status CpuModel::begin(const Call& call) {
  std::vector<PendingRows> rows;
  bool fresh = true;
  for (size_t s = 0; s < call.states.size(); ++s) {
    auto* state = dynamic_cast<CpuState*>(call.states[s]);
    if (state == nullptr || &state->program() != &program_) return invalid("state " + std::to_string(s) + " belongs to another model");
    rows.push_back(state->rows);
    ESPALIER_ASSIGN(const bool replaced, rows.back().begin(call, static_cast<int32_t>(s), state->length()));
    if (s > 0 && replaced != fresh) return invalid("the states of a segment's call were not in one call before");
    fresh = replaced;
  }
  std::shared_ptr<CallFrames> frames;
  if (fresh) {
    for (State* s : call.states) static_cast<CpuState*>(s)->call_frames.reset();
    frames = take_frames(call.rows.size());
    if (frames == nullptr) return {Code::out_of_memory, "the system refused memory for the frames of " + std::to_string(call.rows.size()) + " rows"};
  }
  for (size_t s = 0; s < call.states.size(); ++s) {
    auto* state = static_cast<CpuState*>(call.states[s]);
    if (fresh) ESPALIER_TRY(state->prepare(static_cast<size_t>(rows[s].size()), frames));
    state->rows = std::move(rows[s]);
  }
  return {};
}

Result<Ticket> CpuModel::submit(const Call& call) {
  const std::lock_guard lock(mutex_);
  const FpMode mode;
  ESPALIER_TRY(check_call(program_, call));
  ESPALIER_TRY(begin(call));
  stats_ = {};
  stats_.t0_ns = now_ns();
  stats_.rows = static_cast<int32_t>(call.rows.size());
  const Schedule& plan = schedule(call.function);
  CallRunner runner(*this, plan, call);
  result_ = runner.run();
  for (const Op& op : plan.function->ops) {
    if (op.state == kNone || (call.function.segment != kNone && op.segment != call.function.segment)) continue;
    const auto* attention = std::get_if<AttentionAttr>(&op.attr);
    if (attention != nullptr && !attention->keep) continue;
    for (State* s : call.states) static_cast<CpuState*>(s)->touched[static_cast<size_t>(op.state)] = true;
  }
  stats_.linear_ns = runner.linear_ns();
  stats_.t1_ns = now_ns();
  return ++ticket_;
}

Result<CallStats> CpuModel::wait(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (ticket != ticket_) return invalid("wait: this ticket is not the last call's");
  ESPALIER_TRY(result_);
  return stats_;
}

}  // namespace espalier::cpu
