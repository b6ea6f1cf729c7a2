#include "units/static/static_model.h"

#include <algorithm>

#include "base/clock.h"

namespace espalier::static_unit {
namespace {

size_t size(int32_t n) { return static_cast<size_t>(n); }

template <typename Fn>
bool any_op(const Function& f, Fn fn) {
  return std::any_of(f.ops.begin(), f.ops.end(), fn);
}
bool reads_states(const Function& f) {
  return any_op(f, [](const Op& op) { return op.state != kNone; });
}
bool writes_states(const Function& f) {
  return any_op(f, [](const Op& op) { return op.state != kNone && (op.kind() != OpKind::attention || std::get<AttentionAttr>(op.attr).keep); });
}
bool sees_group(const Function& f) {
  return any_op(f, [](const Op& op) { return op.kind() == OpKind::attention && std::get<AttentionAttr>(op.attr).mask == MaskKind::group; });
}
bool has_head(const Function& f) {
  return any_op(f, [](const Op& op) { return op.kind() == OpKind::head; });
}

Status load_embedding(const Program& program, const WeightSet& weights, HostTables& tables) {
  WeightId table = kNone;
  for (const Function& f : program.functions)
    for (const Op& op : f.ops) {
      if (op.kind() != OpKind::embed || op.weights[0] == table) continue;
      if (table != kNone) return unsupported("the static unit runs programs with one embedding table, and " + program.family + " has two", "embed");
      table = op.weights[0];
    }
  if (table == kNone) return {};
  const SourceMatrix& m = *weights.entries[size(table)].matrix;
  tables.embedding_width = m.cols();
  tables.embedding.resize(m.rows() * m.cols());
  m.dequantize(0, m.rows(), tables.embedding.data());
  return {};
}

}  // namespace

const StateRow& StaticModel::Job::row(int32_t node) const {
  const size_t s = size(nodes[size(node)].sequence);
  return states[s]->call_rows()[size(node) - first_node[s]];
}

Result<std::unique_ptr<Model>> StaticModel::make(const Program& program, const WeightSet& weights, const StaticOptions& options, const MakeBackend& make_backend, bool rounds) {
  std::unique_ptr<StaticModel> model(new StaticModel(program, options, rounds));
  ESPALIER_TRY(model->prepare(weights, make_backend));
  return std::unique_ptr<Model>(std::move(model));
}

Status StaticModel::prepare(const WeightSet& weights, const MakeBackend& make_backend) {
  if (options_.kv == KvForm::dynamic && program_.find(Role::context) != nullptr)
    return unsupported("program " + program_.family + ": rows of its function context are read by another function; K/V that are written in blocks (dynamic) serve one function", "context");
  ESPALIER_TRY(check_weights(program_, weights));
  ESPALIER_ASSIGN(lowered_, lower(program_, static_functions(program_, options_)));
  ESPALIER_TRY(load_embedding(program_, weights, tables_));
  for (const RopeSpec& spec : program_.ropes) tables_.ropes.emplace_back(spec);
  shape_.program = &program_;
  shape_.lowered = &lowered_;
  shape_.hash = program_hash(program_);
  shape_.buckets = options_.buckets;
  shape_.rounds = rounds_;
  shape_.columns_max = options_.buckets.back() - (options_.kv == KvForm::dynamic ? options_.rows : 0);
  shape_.any_base = lowered_.frame_count == 0 && options_.kv != KvForm::dynamic;
  shape_.flush = [this](StaticState& state) { return flush(state); };
  ESPALIER_ASSIGN(backend_, make_backend(lowered_, program_, weights));
  return {};
}

Result<Ticket> StaticModel::submit(const Call& call) {
  ESPALIER_TRY(check_call(program_, call));
  const Function& function = *program_.find(call.function.role);
  if (call.function.segment != kNone && function.segment_count > 1) return unsupported("the static unit runs whole functions, and this call asks for a segment of " + std::string(role_name(function.role)));
  std::vector<PendingRows> pending;
  ESPALIER_ASSIGN(std::vector<StaticState*> states, check_states(call, function, pending));
  stats_ = {};
  stats_.t0_ns = now_ns();
  stats_.rows = static_cast<int32_t>(call.rows.size());
  result_ = run_call(call, function, std::move(states), std::move(pending));
  stats_.t1_ns = now_ns();
  return ++ticket_;
}

Result<CallStats> StaticModel::wait(Ticket ticket) {
  if (ticket != ticket_) return invalid("wait: this ticket is not the last call's");
  ESPALIER_TRY(result_);
  return stats_;
}

// Changes nothing: a refused call leaves all states as they were.
Result<std::vector<StaticState*>> StaticModel::check_states(const Call& call, const Function& function, std::vector<PendingRows>& pending) const {
  std::vector<StaticState*> states;
  std::vector<int32_t> count(call.states.size());
  for (const Row& row : call.rows) {
    ++count[size(row.sequence)];
    if (writes_states(function) && row.position >= shape_.columns_max)
      return unsupported("position " + std::to_string(row.position) + " does not fit the static unit's largest bucket, which takes " + std::to_string(shape_.columns_max) + " rows of a sequence", "buckets");
  }
  for (size_t s = 0; s < call.states.size(); ++s) {
    auto* state = dynamic_cast<StaticState*>(call.states[s]);
    if (state == nullptr || &state->shape() != &shape_) return invalid("state " + std::to_string(s) + " belongs to another model");
    if (sees_group(function) && count[s] > options_.rows)
      return unsupported("sequence " + std::to_string(s) + " has " + std::to_string(count[s]) + " rows that see each other, and a window of the static unit holds " + std::to_string(options_.rows));
    pending.push_back(state->rows);
    ESPALIER_ASSIGN([[maybe_unused]] const bool replaced, pending.back().begin(call, static_cast<int32_t>(s), state->length()));
    states.push_back(state);
  }
  return states;
}

std::vector<StateRow> StaticModel::rows_of(const Call& call, const Function& function, int32_t sequence) const {
  std::vector<StateRow> out;
  std::vector<int32_t> index(call.rows.size(), kNone);
  for (size_t r = 0; r < call.rows.size(); ++r) {
    const Row& row = call.rows[r];
    if (row.sequence != sequence) continue;
    index[r] = static_cast<int32_t>(out.size());
    StateRow to{row.token, row.position, row.parent == kState ? kState : index[size(row.parent)], static_cast<int32_t>(r), {}};
    for (const Port& in : function.inputs)
      for (const NamedTensor& t : call.inputs)
        if (t.name == in.name) to.features.insert(to.features.end(), t.data + r * size(t.width), t.data + (r + 1) * size(t.width));
    out.push_back(std::move(to));
  }
  return out;
}

StaticModel::Job StaticModel::make_job(const Function& function, std::vector<StaticState*>&& states, bool only_writes) const {
  Job job{&function, function.role, std::move(states), {}, {}, {}, only_writes, reads_states(function)};
  for (size_t s = 0; s < job.states.size(); ++s) {
    const int32_t first = static_cast<int32_t>(job.nodes.size());
    job.first_node.push_back(job.nodes.size());
    for (const StateRow& row : job.states[s]->call_rows()) {
      const int32_t parent = row.parent == kState ? kState : row.parent + first;
      job.nodes.push_back({static_cast<int32_t>(s), parent, only_writes || row.call_row != kNone});
      job.depth.push_back(parent == kState ? 0 : job.depth[size(parent)] + 1);
    }
  }
  return job;
}

PlanLimits StaticModel::limits(const Job& job) const {
  PlanLimits l;
  l.rows = options_.rows;
  l.block = options_.kv == KvForm::dynamic;
  l.aligned = l.block && !job.only_writes;
  l.sequences = l.block ? 1 : lowered_.frame_count > 0 ? kFrameSlots / lowered_.frame_count : options_.rows;
  l.columns = shape_.columns_max;
  l.writes = writes_states(*job.function);
  l.group = sees_group(*job.function);
  l.any_base = shape_.any_base;
  return l;
}

Status StaticModel::flush(StaticState& state) {
  const Role role = state.unwritten_role();
  state.begin(PendingRows(), {}, role, true);
  Job job = make_job(*program_.find(role), {&state}, true);
  const Status done = run_windows(job);
  state.settle();
  return done;
}

Status StaticModel::run_call(const Call& call, const Function& function, std::vector<StaticState*>&& states, std::vector<PendingRows>&& pending) {
  for (size_t s = 0; s < states.size(); ++s) {
    states[s]->settle();
    if (!states[s]->unwritten().empty() && states[s]->unwritten_role() != function.role) ESPALIER_TRY(flush(*states[s]));
    states[s]->begin(std::move(pending[s]), rows_of(call, function, static_cast<int32_t>(s)), function.role, writes_states(function));
  }
  Answers answers(call);
  Job job = make_job(function, std::move(states), false);
  job.call = &call;
  job.answers = &answers;
  ESPALIER_TRY(run_windows(job));
  answers.write();
  return {};
}

Status StaticModel::run_windows(Job& job) {
  std::vector<int32_t> written;
  for (const StaticState* state : job.states) written.push_back(job.reads ? state->written() : 0);
  ESPALIER_ASSIGN(const std::vector<PlannedWindow> windows, plan_windows(job.nodes, written, limits(job)));
  for (const PlannedWindow& window : windows) ESPALIER_TRY(run_window(job, window));
  return {};
}

}  // namespace espalier::static_unit

namespace espalier {

LowerOptions static_functions(const Program& program, const StaticOptions& options) {
  LowerOptions o;
  o.kv = options.kv;
  o.weights = options.weights;
  o.norm = options.norm;
  o.subrange = options.subrange;
  o.attention_chunks = options.attention_chunks;
  for (const Function& f : program.functions)
    for (int32_t bucket : options.buckets) {
      if (!static_unit::reads_states(f) && bucket != options.buckets.front()) continue;
      o.functions.push_back({f.role, options.rows, bucket, HeadRows::none, HeadForm::maxima});
      if (!static_unit::has_head(f)) continue;
      for (HeadRows rows : {HeadRows::chosen, HeadRows::all})
        for (HeadForm form : {HeadForm::maxima, HeadForm::logits}) o.functions.push_back({f.role, options.rows, bucket, rows, form});
    }
  return o;
}

}  // namespace espalier
