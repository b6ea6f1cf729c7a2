// What every later piece stands on, on both units and every family: the bits do not depend on how rows are put into calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "program/cut.h"
#include "tiny_models.h"
#include "units/cpu/cpu_unit.h"
#include "units/reference/reference.h"

namespace espalier::test {
namespace {

// Unit and model: "cpu-f16/lfm2-f32".
struct Case {
  std::string unit, model;
};

std::unique_ptr<Unit> open_unit(const std::string& name) {
  if (name == "reference") return make_reference_unit();
  CpuOptions options;
  options.threads = 2;
  options.kv = name == "cpu-i8" ? KvType::i8 : KvType::f16;
  Result<std::unique_ptr<CpuUnit>> unit = CpuUnit::make(options);
  if (!unit.ok()) ADD_FAILURE() << unit.status().message();
  return unit.ok() ? std::move(unit).value() : nullptr;
}

class Foundation : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    unit_ = open_unit(GetParam().unit);
    tiny_ = load_tiny(GetParam().model);
    model_ = compile(tiny_.plan.program);
    ASSERT_NE(model_, nullptr);
    vocabulary_ = tiny_.plan.program.vocabulary;
  }
  std::unique_ptr<Model> compile(const Program& program) {
    Result<std::unique_ptr<Model>> model = unit_->compile(program, tiny_.weights);
    if (!model.ok()) ADD_FAILURE() << model.status().message();
    return model.ok() ? std::move(model).value() : nullptr;
  }
  std::unique_ptr<State> fresh(Model& model) { return std::move(model.make_state()).value(); }
  std::unique_ptr<State> fresh() { return fresh(*model_); }
  std::vector<int32_t> tokens(uint64_t seed, size_t n) { return random_tokens(seed, n, vocabulary_); }

  std::unique_ptr<Unit> unit_;
  TinyModel tiny_;
  std::unique_ptr<Model> model_;
  int32_t vocabulary_ = 0;
};

std::vector<std::byte> state_bytes(const State& state) { return serialize(state.export_neutral()); }

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

Status run(Model& model, std::span<const Row> rows, std::span<State* const> states, Outputs& out, FunctionId function = {},
           std::span<const NamedTensor> inputs = {}) {
  Call call;
  call.function = function;
  call.rows = rows;
  call.states = states;
  call.inputs = inputs;
  call.top_k = 5;
  call.out = &out;
  Result<CallStats> stats = model.run(call);
  return stats.ok() ? Status() : stats.status();
}

std::vector<int32_t> iota(size_t n) {
  std::vector<int32_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<int32_t>(i);
  return out;
}

// Runs rows through all segments of a cut program, handing every edge over.
Status run_segments(Model& model, std::span<const Row> rows, State& state, Outputs& out) {
  const Function& f = model.program().functions[0];
  std::vector<NamedOutput> edges;
  State* states[] = {&state};
  for (int32_t s = 0; s < f.segment_count; ++s) {
    std::vector<NamedTensor> inputs;
    for (const NamedOutput& e : edges) inputs.push_back({e.name, e.data.data(), static_cast<int32_t>(e.data.size() / rows.size())});
    Outputs segment;
    ESPALIER_TRY(run(model, rows, states, segment, {Role::step, s}, inputs));
    for (NamedOutput& e : segment.edges) edges.push_back(std::move(e));
    if (s == f.segment_count - 1) out = std::move(segment);
  }
  return {};
}

void expect_cut_equals_whole(Model& whole, Model& cut, std::span<const int32_t> text) {
  std::unique_ptr<State> a = std::move(whole.make_state()).value(), b = std::move(cut.make_state()).value();
  for (size_t begin = 0; begin < text.size();) {  // chunks, so that segments also meet held rows
    const size_t n = std::min<size_t>(begin == 0 ? 9 : 5, text.size() - begin);
    const std::vector<float> expected = run_chain(whole, *a, text.subspan(begin, n));
    const std::vector<Row> rows = chain(text.subspan(begin, n), b->length(), kWantLogits);
    Outputs out;
    const Status s = run_segments(cut, rows, *b, out);
    ASSERT_TRUE(s.ok()) << s.message();
    ASSERT_TRUE(b->commit(iota(n)).ok());
    EXPECT_TRUE(same_bits(out.logits, expected)) << "rows from " << begin;
    begin += n;
  }
  NeutralState na = a->export_neutral(), nb = b->export_neutral();
  for (size_t t = 0; t < na.tensors.size(); ++t) EXPECT_TRUE(same_bits(na.tensors[t].data, nb.tensors[t].data)) << na.tensors[t].name;
}

TEST_P(Foundation, a_program_cut_after_every_layer_gives_the_bits_of_the_whole) {
  std::vector<int32_t> layers;
  for (int32_t l = 0; l + 1 < tiny_.plan.program.layer_count; ++l) layers.push_back(l);
  Result<Program> program = cut_after_layers(tiny_.plan.program, layers);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const std::unique_ptr<Model> cut = compile(*program);
  expect_cut_equals_whole(*model_, *cut, tokens(1, 24));
}

TEST_P(Foundation, a_program_cut_after_any_one_layer_gives_the_bits_of_the_whole) {
  for (int32_t l = 0; l + 1 < tiny_.plan.program.layer_count; ++l) {
    Result<Program> program = cut_after_layers(tiny_.plan.program, std::span(&l, 1));
    ASSERT_TRUE(program.ok()) << program.status().message();
    const std::unique_ptr<Model> cut = compile(*program);
    expect_cut_equals_whole(*model_, *cut, tokens(2, 14));
  }
}

TEST_P(Foundation, a_program_cut_round_every_attention_core_gives_the_bits_of_the_whole) {
  Result<Program> program = cut_round_attention(tiny_.plan.program);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const std::unique_ptr<Model> cut = compile(*program);
  expect_cut_equals_whole(*model_, *cut, tokens(3, 24));
}

TEST_P(Foundation, a_whole_call_on_a_cut_program_equals_the_uncut_one) {
  Result<Program> program = cut_round_attention(tiny_.plan.program);
  const std::unique_ptr<Model> cut = compile(*program);
  std::unique_ptr<State> a = fresh(), b = fresh(*cut);
  EXPECT_TRUE(same_bits(run_chain(*model_, *a, tokens(4, 20)), run_chain(*cut, *b, tokens(4, 20))));
}

// A random tree of n rows: parents anywhere before, positions one above their parent's.
std::vector<Row> random_tree(Random& random, int32_t n, int32_t length, int32_t vocabulary, int32_t sequence = 0) {
  std::vector<Row> rows;
  for (int32_t i = 0; i < n; ++i) {
    // Half of the rows continue the row before, the others hang anywhere, also on the state.
    const int32_t p = random.below(2) == 0 ? i - 1 : random.below(i + 1) - 1;
    const int32_t position = p == kState ? length : rows[static_cast<size_t>(p)].position + 1;
    rows.push_back({random.below(vocabulary), sequence, position, p, kWantLogits | kWantArgmax | kWantLse | kWantTopK});
  }
  return rows;
}

std::vector<int32_t> path_to(std::span<const Row> rows, int32_t row) {
  std::vector<int32_t> path;
  for (int32_t r = row; r != kState; r = rows[static_cast<size_t>(r)].parent) path.push_back(r);
  std::reverse(path.begin(), path.end());
  return path;
}

TEST_P(Foundation, random_trees_with_random_accepted_paths_give_the_bits_of_serial_decoding) {
  Random random(7);
  std::unique_ptr<State> tree = fresh();
  std::vector<int32_t> text = tokens(5, 17);
  (void)run_chain(*model_, *tree, text);
  for (int32_t n : {1, 2, 3, 5, 8, 13, 21, 34, 48, 63, 64, 64, 30, 7}) {
    const std::vector<Row> rows = random_tree(random, n, tree->length(), vocabulary_);
    State* states[] = {tree.get()};
    Outputs out;
    const Status s = run(*model_, rows, states, out);
    ASSERT_TRUE(s.ok()) << s.message();
    // Every row, serially from a fork of the state.
    const size_t v = static_cast<size_t>(vocabulary_);
    for (int32_t r : {0, n / 3, n / 2, n - 1}) {
      std::vector<int32_t> path;
      for (int32_t node : path_to(rows, r)) path.push_back(rows[static_cast<size_t>(node)].token);
      std::unique_ptr<State> serial = tree->fork();
      std::vector<float> logits;
      for (int32_t token : path) logits = run_chain(*model_, *serial, std::span(&token, 1));
      const auto from = out.logits.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(r) * v);
      EXPECT_TRUE(same_bits(logits, std::vector<float>(from, from + vocabulary_))) << "row " << r << " of " << n;
    }
    const int32_t accepted = random.below(n + 1) - 1;
    const std::vector<int32_t> path = accepted < 0 ? std::vector<int32_t>{} : path_to(rows, accepted);
    ASSERT_TRUE(tree->commit(path).ok());
    for (int32_t node : path) text.push_back(rows[static_cast<size_t>(node)].token);
    EXPECT_EQ(tree->length(), static_cast<int32_t>(text.size()));
  }
  std::unique_ptr<State> serial = fresh();
  for (int32_t token : text) (void)run_chain(*model_, *serial, std::span(&token, 1));
  EXPECT_EQ(state_bytes(*serial), state_bytes(*tree));
}

TEST_P(Foundation, two_sequences_in_one_call_give_the_bits_of_each_alone) {
  Random random(11);
  std::unique_ptr<State> a = fresh(), b = fresh();
  (void)run_chain(*model_, *a, tokens(6, 23));
  (void)run_chain(*model_, *b, tokens(7, 3));
  std::unique_ptr<State> alone_a = a->fork(), alone_b = b->fork();
  const std::vector<Row> rows_a = random_tree(random, 9, a->length(), vocabulary_, 0), rows_b = random_tree(random, 6, b->length(), vocabulary_, 1);
  // Interleaved: a row of each in turn.
  std::vector<Row> rows;
  std::vector<int32_t> at_a, at_b;
  for (size_t i = 0; i < std::max(rows_a.size(), rows_b.size()); ++i) {
    const auto put = [&](const std::vector<Row>& from, std::vector<int32_t>& at) {
      if (i >= from.size()) return;
      Row row = from[i];
      if (row.parent != kState) row.parent = at[static_cast<size_t>(row.parent)];
      at.push_back(static_cast<int32_t>(rows.size()));
      rows.push_back(row);
    };
    put(rows_a, at_a);
    put(rows_b, at_b);
  }
  State* both[] = {a.get(), b.get()};
  Outputs out;
  ASSERT_TRUE(run(*model_, rows, both, out).ok());
  const auto check = [&](std::vector<Row> own, const std::vector<int32_t>& at, State& alone) {
    for (Row& r : own) r.sequence = 0;
    State* one[] = {&alone};
    Outputs expected;
    ASSERT_TRUE(run(*model_, own, one, expected).ok());
    for (size_t i = 0; i < own.size(); ++i) {
      const auto x = out.logits.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(at[i]) * static_cast<size_t>(vocabulary_));
      const auto y = expected.logits.begin() + static_cast<ptrdiff_t>(i * static_cast<size_t>(vocabulary_));
      EXPECT_TRUE(std::equal(y, y + vocabulary_, x)) << "row " << i;
    }
    ASSERT_TRUE(alone.commit(path_to(own, static_cast<int32_t>(own.size()) - 1)).ok());
  };
  check(rows_a, at_a, *alone_a);
  check(rows_b, at_b, *alone_b);
  ASSERT_TRUE(a->commit(path_to(rows, at_a.back())).ok());
  ASSERT_TRUE(b->commit(path_to(rows, at_b.back())).ok());
  EXPECT_EQ(state_bytes(*a), state_bytes(*alone_a));
  EXPECT_EQ(state_bytes(*b), state_bytes(*alone_b));
}

TEST_P(Foundation, prefill_in_chunks_of_any_size_leaves_equal_states) {
  const std::vector<int32_t> text = tokens(8, 531);
  std::vector<std::byte> expected;
  std::vector<float> expected_logits;
  for (size_t chunk : {1u, 7u, 64u, 512u}) {
    std::unique_ptr<State> state = fresh();
    std::vector<float> last;
    for (size_t begin = 0; begin < text.size(); begin += chunk)
      last = run_chain(*model_, *state, std::span(text).subspan(begin, std::min(chunk, text.size() - begin)));
    last.erase(last.begin(), last.end() - vocabulary_);
    if (expected.empty()) {
      expected = state_bytes(*state);
      expected_logits = last;
    }
    EXPECT_EQ(state_bytes(*state), expected) << "chunks of " << chunk;
    EXPECT_TRUE(same_bits(last, expected_logits)) << "chunks of " << chunk;
  }
}

TEST_P(Foundation, fork_snapshot_restore_save_and_load_continue_with_equal_bits) {
  const std::vector<int32_t> head = tokens(9, 140), tail = tokens(10, 9);
  std::unique_ptr<State> state = fresh();
  (void)run_chain(*model_, *state, head);
  std::unique_ptr<State> snapshot = state->fork();
  const std::vector<std::byte> saved = state_bytes(*state);
  const std::vector<float> expected = run_chain(*model_, *state, tail);
  const std::vector<std::byte> expected_state = state_bytes(*state);

  EXPECT_EQ(state_bytes(*snapshot), saved) << "a fork must not see what its source does later";
  std::unique_ptr<State> fork = snapshot->fork();
  EXPECT_TRUE(same_bits(run_chain(*model_, *fork, tail), expected));
  EXPECT_EQ(state_bytes(*fork), expected_state);

  ASSERT_TRUE(state->restore(*snapshot).ok());
  EXPECT_EQ(state_bytes(*state), saved);
  EXPECT_TRUE(same_bits(run_chain(*model_, *state, tail), expected));

  std::unique_ptr<State> loaded = fresh();
  Result<NeutralState> neutral = deserialize(saved);
  ASSERT_TRUE(neutral.ok());
  std::string note = "x";
  ASSERT_TRUE(loaded->import_neutral(*neutral, &note).ok());
  EXPECT_EQ(note, "") << "a state's own values need no rounding";
  EXPECT_EQ(state_bytes(*loaded), saved);
  EXPECT_TRUE(same_bits(run_chain(*model_, *loaded, tail), expected));
}

TEST_P(Foundation, rolling_back_everything_or_nothing_leaves_the_exact_state) {
  std::unique_ptr<State> state = fresh();
  (void)run_chain(*model_, *state, tokens(12, 30));
  const std::vector<std::byte> before = state_bytes(*state);
  Random random(3);
  const std::vector<Row> rows = random_tree(random, 12, state->length(), vocabulary_);
  State* states[] = {state.get()};
  Outputs out;
  ASSERT_TRUE(run(*model_, rows, states, out).ok());
  EXPECT_EQ(state_bytes(*state), before) << "pending rows are not held";
  ASSERT_TRUE(state->commit({}).ok());
  EXPECT_EQ(state_bytes(*state), before);
  ASSERT_TRUE(run(*model_, rows, states, out).ok());
  ASSERT_TRUE(run(*model_, rows, states, out).ok()) << "a new call drops pending rows";
  const int32_t bad[] = {1};
  if (rows[1].parent == 0) {
    EXPECT_FALSE(state->commit(bad).ok());
  }
  EXPECT_EQ(state_bytes(*state), before);
}

TEST_P(Foundation, every_want_agrees_with_the_logits) {
  std::unique_ptr<State> state = fresh();
  const std::vector<int32_t> text = tokens(13, 9);
  std::vector<Row> rows = chain(text, 0, kWantLogits | kWantArgmax | kWantTopK | kWantLse | kWantTaps);
  rows[3].wants = 0;
  rows[5].wants = kWantTaps;
  State* states[] = {state.get()};
  Outputs out;
  out.taps = {{"layer.0", {}}, {"layer.1", {}}};
  ASSERT_TRUE(run(*model_, rows, states, out).ok());
  const size_t v = static_cast<size_t>(vocabulary_), asking = 7;
  ASSERT_EQ(out.logits.size(), asking * v);
  ASSERT_EQ(out.argmax.size(), asking);
  ASSERT_EQ(out.top.size(), asking * 5);
  ASSERT_EQ(out.lse.size(), asking);
  EXPECT_EQ(out.taps[0].data.size(), 8u * static_cast<size_t>(tiny_.plan.program.hidden));
  EXPECT_FALSE(same_bits(out.taps[0].data, out.taps[1].data));
  for (size_t r = 0; r < asking; ++r) {
    const auto row = out.logits.begin() + static_cast<ptrdiff_t>(r * v);
    EXPECT_EQ(out.argmax[r], std::max_element(row, row + vocabulary_) - row);
    EXPECT_EQ(out.top[r * 5].id, out.argmax[r]);
    for (size_t k = 0; k + 1 < 5; ++k) EXPECT_GE(out.top[r * 5 + k].logit, out.top[r * 5 + k + 1].logit);
    double sum = 0;
    for (size_t i = 0; i < v; ++i) sum += std::exp(static_cast<double>(row[static_cast<ptrdiff_t>(i)]));
    EXPECT_NEAR(out.lse[r], std::log(sum), 1e-5 * std::max(1.0, std::fabs(std::log(sum))));
  }
}

TEST_P(Foundation, bad_calls_are_refused_and_change_nothing) {
  std::unique_ptr<State> state = fresh();
  (void)run_chain(*model_, *state, tokens(14, 4));
  const std::vector<std::byte> before = state_bytes(*state);
  State* states[] = {state.get()};
  State* twice[] = {state.get(), state.get()};
  Outputs out;
  const Row bad[] = {{vocabulary_, 0, 4, kState, kWantArgmax}, {-1, 0, 4, kState, kWantArgmax}, {1, 1, 4, kState, kWantArgmax},
                     {1, 0, 5, kState, kWantArgmax},           {1, 0, 4, 0, kWantArgmax},       {1, 0, -1, kState, kWantArgmax}};
  for (const Row& row : bad) EXPECT_FALSE(run(*model_, std::span(&row, 1), states, out).ok());
  const Row good{1, 0, 4, kState, kWantArgmax};
  EXPECT_FALSE(run(*model_, std::span(&good, 1), twice, out).ok());
  EXPECT_FALSE(run(*model_, std::span(&good, 1), states, out, {Role::context, kNone}).ok());
  EXPECT_FALSE(run(*model_, std::span(&good, 1), states, out, {Role::step, 1}).ok());
  out.taps = {{"layer.99", {}}};
  EXPECT_FALSE(run(*model_, std::span(&good, 1), states, out).ok());
  EXPECT_EQ(state_bytes(*state), before);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* unit : {"reference", "cpu-f16", "cpu-i8"})
    for (const std::string& model : one_of_each_family()) out.push_back({unit, model});
  out.push_back({"cpu-f16", "lfm2-l4-bias"});  // four taps, biases everywhere
  out.push_back({"cpu-f16", "lfm2-gguf-k"});   // mixed forms in one layer
  return out;
}

INSTANTIATE_TEST_SUITE_P(Units, Foundation, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.unit + "_" + info.param.model;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace espalier::test
