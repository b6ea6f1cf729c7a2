#include "twin_unit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace espalier::test {
namespace {

void expect_bits(const std::vector<float>& found, const std::vector<float>& expected, const std::string& where, Compared& compared) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  size_t differing = 0, first = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::memcmp(&found[i], &expected[i], sizeof(float)) == 0 || (std::isnan(found[i]) && std::isnan(expected[i]))) continue;
    if (differing++ == 0) first = i;
  }
  compared.values += found.size();
  EXPECT_EQ(differing, 0u) << where << ": of " << found.size() << ", the first at " << first << ": " << found[first] << ", expected " << expected[first];
}

// Runs each window on both, compares, and goes on with the runtime's answers.
class TwinBackend : public StaticBackend {
 public:
  TwinBackend(const LoweredProgram& lowered, std::unique_ptr<StaticBackend> runtime, std::unique_ptr<StaticBackend> evaluator, Compared& compared)
      : lowered_(lowered), runtime_(std::move(runtime)), evaluator_(std::move(evaluator)), compared_(compared) {}

  Status run(int32_t function, std::span<const NamedValues> inputs, std::span<std::vector<float>> states, std::vector<NamedValues>& outputs) override {
    std::vector<std::vector<float>> expected_states(states.begin(), states.end());
    std::vector<NamedValues> expected;
    ESPALIER_TRY(evaluator_->run(function, inputs, expected_states, expected));
    ESPALIER_TRY(runtime_->run(function, inputs, states, outputs));
    const std::string name = lowered_.family + ", " + function_name(lowered_.functions[static_cast<size_t>(function)].spec);
    compared_.functions.insert(name);
    ++compared_.runs;
    for (size_t i = 0; i < expected.size(); ++i) expect_bits(outputs[i].data, expected[i].data, name + ", " + expected[i].name, compared_);
    for (size_t s = 0; s < states.size(); ++s) expect_bits(states[s], expected_states[s], name + ", " + lowered_.states[s].name, compared_);
    return {};
  }

 private:
  const LoweredProgram& lowered_;
  std::unique_ptr<StaticBackend> runtime_, evaluator_;
  Compared& compared_;
};

// One sequence on a model: calls of any shape, and what of them is kept.
class Text {
 public:
  Text(Model& model, std::vector<int32_t> tokens) : model_(model), tokens_(std::move(tokens)), state_(std::move(model.make_state()).value()) {}

  void prefill(int32_t count, uint32_t wants_last) {
    std::vector<Row> rows = chain(std::span(tokens_).subspan(static_cast<size_t>(state_->length()), static_cast<size_t>(count)), state_->length(), 0);
    rows.back().wants = wants_last;
    std::vector<int32_t> path;
    for (int32_t i = 0; i < count; ++i) path.push_back(i);
    run(std::move(rows), path);
  }
  // Row i > 0 is a child of row parents[i - 1].
  void tree(const std::vector<int32_t>& parents, uint32_t wants, const std::vector<int32_t>& path) {
    const int32_t length = state_->length();
    std::vector<Row> rows = {{tokens_[static_cast<size_t>(length)], 0, length, kState, wants}};
    for (size_t i = 0; i < parents.size(); ++i) {
      const int32_t token = tokens_[static_cast<size_t>(length) + i + 1];
      rows.push_back({token, 0, rows[static_cast<size_t>(parents[i])].position + 1, parents[i], wants});
    }
    run(std::move(rows), path);
  }
  std::unique_ptr<State> fork() const { return state_->fork(); }
  void restore(const State& to) { ASSERT_TRUE(state_->restore(to).ok()); }
  int32_t length() const { return state_->length(); }

 private:
  void run(std::vector<Row> rows, const std::vector<int32_t>& path) {
    State* states[] = {state_.get()};
    Outputs out;
    Call call;
    call.rows = rows;
    call.states = states;
    call.out = &out;
    call.top_k = 4;
    const Result<CallStats> stats = model_.run(call);
    ASSERT_TRUE(stats.ok()) << stats.status().message();
    const Status kept = state_->commit(path);
    ASSERT_TRUE(kept.ok()) << kept.message();
  }

  Model& model_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<State> state_;
};

const std::string kDemo = std::string(ESPALIER_SOURCE_DIR) + "/models/demo";

}  // namespace

std::unique_ptr<Unit> twin_unit(const StaticOptions& options, const MakeBackend& runtime, Arithmetic arithmetic, Compared& compared) {
  const MakeBackend make = [=, &compared](const LoweredProgram& lowered, const Program& program, const WeightSet& weights) -> Result<std::unique_ptr<StaticBackend>> {
    ESPALIER_ASSIGN(std::unique_ptr<StaticBackend> one, runtime(lowered, program, weights));
    ESPALIER_ASSIGN(std::unique_ptr<StaticBackend> other, evaluator_backend({arithmetic, 0, 0})(lowered, program, weights));
    return std::unique_ptr<StaticBackend>(std::make_unique<TwinBackend>(lowered, std::move(one), std::move(other), compared));
  };
  return std::move(make_static_unit(options, "twin", make, true)).value();
}

std::unique_ptr<Model> compiled(Unit& unit, const Program& program, const WeightSet& weights) {
  Result<std::unique_ptr<Model>> model = unit.compile(program, weights);
  if (model.ok()) return std::move(model).value();
  ADD_FAILURE() << model.status().message();
  return nullptr;
}

Demo::Demo()
    : checkpoint(std::move(Checkpoint::open(kDemo)).value()),
      drafter_checkpoint(std::move(Checkpoint::open(kDemo + "/drafter")).value()),
      plan(std::move(plan_model(checkpoint)).value()),
      drafter(std::move(plan_drafter(drafter_checkpoint, plan.program)).value()),
      weights(std::move(bind_weights(plan, checkpoint)).value()),
      drafter_weights(std::move(bind_drafter_weights(drafter, drafter_checkpoint, plan.program, weights)).value()) {}

void run_everything(Model& model, const StaticOptions& options, uint64_t seed) {
  Text text(model, random_tokens(seed, 400, model.program().vocabulary));
  const int32_t bucket = options.buckets[0];
  text.prefill(options.rows + options.rows / 4, kWantArgmax);      // two windows
  text.tree({0, 1, 2}, kWantArgmax, {0, 1, 2});                    // a chain, two drafts kept
  text.tree({0, 0, 1, 1, 2}, kWantArgmax, {0, 2, 5});              // a branch that no window has written
  text.tree({0, 0, 0, 3, 3, 4}, kWantLogits | kWantTopK, {0});     // no draft kept
  const std::unique_ptr<State> before = text.fork();
  const int32_t left = bucket - text.length();
  if (left > 0) text.prefill(left, 0);                             // into the next bucket
  text.tree({0, 1, 0, 3, 3, 2}, kWantArgmax | kWantLse, {0, 1, 2, 6});
  EXPECT_GT(text.length(), bucket);
  text.restore(*before);
  text.tree({0}, kWantArgmax, {0, 1});
}

void draft_everything(Model& drafter, const DrafterPlan& plan, const StaticOptions& options, uint64_t seed) {
  const size_t width = static_cast<size_t>(plan.head.hidden) * plan.tap_layers.size();
  const size_t last = static_cast<size_t>(options.buckets[0]) + 2;
  Random random(seed);
  std::vector<float> taps(last * width);
  for (float& t : taps) t = static_cast<float>(random.below(4001) - 2000) / 1000.0f;
  const std::vector<int32_t> tokens = random_tokens(seed + 1, last, drafter.program().vocabulary);
  const std::unique_ptr<State> state = std::move(drafter.make_state()).value();
  size_t from = 0;
  for (const size_t to : {last - 26, last - 23, last}) {
    keep_context(drafter, *state, tokens, taps, from, to);
    draft_block(drafter, *state, plan, tokens[to - 1]);
    from = to;
  }
}

void run_families(StaticOptions base, KvForm first, const std::function<MakeBackend(const std::string& name)>& runtime, Arithmetic arithmetic) {
  constexpr KvForm kForms[] = {KvForm::place, KvForm::delta, KvForm::dynamic};
  const size_t from = static_cast<size_t>(std::find(std::begin(kForms), std::end(kForms), first) - std::begin(kForms));
  base.weights = ScalarType::f16;
  base.subrange = 100;
  size_t i = 0;
  for (const std::string& name : one_of_each_family()) {
    const TinyModel tiny = load_tiny(name);
    StaticOptions options = base;
    options.kv = kForms[(from + i) % 3];
    options.attention_chunks = i == 0 ? 3 : 1;
    if (options.kv == KvForm::dynamic) {
      options.rows = 64;
      options.buckets = {128, 256};
    }
    Compared compared;
    const std::unique_ptr<Unit> unit = twin_unit(options, runtime(name), arithmetic, compared);
    const std::unique_ptr<Model> model = compiled(*unit, tiny.plan.program, tiny.weights);
    ASSERT_NE(model, nullptr) << name;
    run_everything(*model, options, 20 + i++);
    EXPECT_GE(compared.runs, 7u) << name;
  }
}

}  // namespace espalier::test
