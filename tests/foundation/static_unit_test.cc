// The static unit against the reference unit: prefill, one row, chains, trees of any shape, several sequences, accept lengths from
// none to all, across buckets; in each form in which K/V get into the states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lower/lint.h"
#include "tiny_drafters.h"
#include "units/reference/reference.h"
#include "units/static/static_unit.h"

namespace espalier::test {
namespace {

// fp32 on both sides; sums in double, rounded once, but in other places: 1e-5 of the largest value of the row.
constexpr double kRelative = 1e-5;

StaticOptions small_options(KvForm kv, int32_t rows = 16) {
  StaticOptions o;
  o.rows = kv == KvForm::dynamic ? 64 : rows;
  o.buckets = kv == KvForm::dynamic ? std::vector<int32_t>{96, 160, 288} : std::vector<int32_t>{32, 64, 96, 160};
  o.kv = kv;
  o.subrange = 100;
  o.evaluate = {Arithmetic::f32, 0, 1};
  return o;
}

struct Pair {
  std::unique_ptr<Unit> reference_unit, static_unit;
  std::unique_ptr<Model> reference, fixed;
};
Pair compile(const Program& program, const WeightSet& weights, const StaticOptions& options) {
  Pair p;
  p.reference_unit = make_reference_unit();
  p.static_unit = std::move(make_static_unit(options)).value();
  p.reference = std::move(p.reference_unit->compile(program, weights)).value();
  Result<std::unique_ptr<Model>> fixed = p.static_unit->compile(program, weights);
  if (!fixed.ok()) ADD_FAILURE() << fixed.status().message();
  else p.fixed = std::move(fixed).value();
  return p;
}

// Rows of `width` floats: each within the tolerance of its largest value.
void expect_near(std::span<const float> found, std::span<const float> expected, size_t width, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (size_t r = 0; r * width < expected.size(); ++r) {
    double largest = 0, worst = 0;
    for (size_t i = r * width; i < (r + 1) * width; ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
      worst = std::max(worst, std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
    }
    ASSERT_LE(worst, kRelative * std::max(largest, 1e-3)) << where << ", row " << r;
  }
}

// The same sequences on both models; every call's answers and, on demand, every state are compared.
class Twin {
 public:
  Twin(Pair& pair, size_t sequences) : pair_(pair) {
    for (size_t s = 0; s < sequences; ++s) {
      reference_.push_back(std::move(pair.reference->make_state()).value());
      fixed_.push_back(std::move(pair.fixed->make_state()).value());
    }
  }

  // False where the static unit refused.
  void run(std::vector<Row> rows, const std::string& where, const std::vector<std::string>& taps = {}, uint32_t top_k = 3) {
    Outputs expected = call(*pair_.reference, reference_, rows, taps, top_k), found = call(*pair_.fixed, fixed_, rows, taps, top_k);
    const size_t vocabulary = static_cast<size_t>(pair_.reference->program().vocabulary);
    expect_near(found.logits, expected.logits, vocabulary, where + ", logits");
    expect_near(found.lse, expected.lse, 1, where + ", log-sum-exp");
    for (size_t t = 0; t < taps.size(); ++t) expect_near(found.taps[t].data, expected.taps[t].data, static_cast<size_t>(pair_.reference->program().hidden), where + ", " + taps[t]);
    ASSERT_EQ(found.top.size(), expected.top.size()) << where;
    EXPECT_EQ(found.argmax, expected.argmax) << where;
  }
  void commit(size_t s, const std::vector<int32_t>& rows, const std::string& where) {
    ASSERT_TRUE(reference_[s]->commit(rows).ok()) << where;
    const Status done = fixed_[s]->commit(rows);
    ASSERT_TRUE(done.ok()) << where << ": " << done.message();
    ASSERT_EQ(fixed_[s]->length(), reference_[s]->length()) << where;
  }
  void compare_states(size_t s, const std::string& where) {
    const NeutralState expected = reference_[s]->export_neutral(), found = fixed_[s]->export_neutral();
    ASSERT_EQ(found.tokens, expected.tokens) << where;
    for (size_t t = 0; t < expected.tensors.size(); ++t) {
      ASSERT_EQ(found.tensors[t].name, expected.tensors[t].name);
      expect_near(found.tensors[t].data, expected.tensors[t].data, std::max<size_t>(1, expected.tensors[t].data.size()), where + ", " + expected.tensors[t].name);
    }
  }
  int32_t length(size_t s) const { return reference_[s]->length(); }
  State& reference(size_t s) { return *reference_[s]; }
  State& fixed(size_t s) { return *fixed_[s]; }
  void fork_from(size_t s, size_t other) {
    reference_[s] = reference_[other]->fork();
    fixed_[s] = fixed_[other]->fork();
  }

 private:
  static Outputs call(Model& model, std::vector<std::unique_ptr<State>>& states, const std::vector<Row>& rows, const std::vector<std::string>& taps, uint32_t top_k) {
    std::vector<State*> of;
    for (auto& s : states) of.push_back(s.get());
    Outputs out;
    for (const std::string& t : taps) out.taps.push_back({t, {}});
    Call call;
    call.rows = rows;
    call.states = of;
    call.out = &out;
    call.top_k = top_k;
    const Result<CallStats> stats = model.run(call);
    if (!stats.ok()) ADD_FAILURE() << stats.status().message();
    return out;
  }
  Pair& pair_;
  std::vector<std::unique_ptr<State>> reference_, fixed_;
};

std::vector<int32_t> first_rows(int32_t n) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < n; ++i) out.push_back(i);
  return out;
}

constexpr KvForm kForms[] = {KvForm::place, KvForm::delta, KvForm::dynamic};

TEST(StaticUnit, prefill_and_one_row_equal_the_reference_across_buckets) {
  for (const std::string& name : one_of_each_family())
    for (KvForm kv : kForms) {
      const TinyModel tiny = load_tiny(name);
      Pair pair = compile(tiny.plan.program, tiny.weights, small_options(kv));
      ASSERT_TRUE(pair.fixed);
      const std::string where = name + ", " + kv_form_name(kv);
      Twin twin(pair, 1);
      const auto tokens = random_tokens(5, 150, tiny.plan.program.vocabulary);
      twin.run(chain(std::span(tokens).first(75), 0, kWantLogits | kWantLse | kWantTaps), where + ", prefill", {"layer.0", "layer.1"});
      twin.commit(0, first_rows(75), where);
      twin.compare_states(0, where + ", after prefill");
      for (int32_t i = 75; i < 100; ++i) {
        twin.run(chain(std::span(tokens).subspan(static_cast<size_t>(i), 1), i, i % 3 == 0 ? kWantArgmax | kWantLogits : uint32_t{kWantArgmax}), where + ", row " + std::to_string(i));
        twin.commit(0, {0}, where);
        if (HasFatalFailure()) return;
      }
      twin.compare_states(0, where + ", at the end");
    }
}

TEST(StaticUnit, every_accept_length_of_a_chain_equals_the_reference) {
  for (const std::string& name : one_of_each_family())
    for (KvForm kv : kForms) {
      const TinyModel tiny = load_tiny(name);
      Pair pair = compile(tiny.plan.program, tiny.weights, small_options(kv));
      ASSERT_TRUE(pair.fixed);
      Twin twin(pair, 1);
      for (int32_t accept = 0; accept <= 8; ++accept) {
        const std::string where = name + ", " + kv_form_name(kv) + ", accept " + std::to_string(accept);
        twin.run(chain(random_tokens(static_cast<uint64_t>(accept) + 40, 8, tiny.plan.program.vocabulary), twin.length(0), kWantLogits), where);
        twin.commit(0, first_rows(accept), where);
        twin.compare_states(0, where);
        if (HasFatalFailure()) return;
      }
    }
}

// Random trees (or chains, or forests) on each sequence; whoever calls knows nothing of windows.
std::vector<Row> random_call(Random& random, const Twin& twin, size_t sequences, int32_t vocabulary, int32_t rows_max) {
  std::vector<Row> rows;
  std::vector<std::vector<int32_t>> own(sequences);
  const bool is_chain = random.below(3) == 0;
  const int32_t count = 1 + random.below(rows_max);
  for (int32_t i = 0; i < count; ++i) {
    const size_t s = static_cast<size_t>(random.below(static_cast<int32_t>(sequences)));
    int32_t parent = kState;
    if (!own[s].empty() && random.below(20) != 0)
      parent = is_chain || random.below(2) ? own[s].back() : own[s][static_cast<size_t>(random.below(static_cast<int32_t>(own[s].size())))];
    const int32_t position = parent == kState ? twin.length(s) : rows[static_cast<size_t>(parent)].position + 1;
    constexpr uint32_t kWants[] = {0, kWantArgmax, kWantLogits, kWantTopK | kWantLse, kWantTaps | kWantArgmax};
    own[s].push_back(static_cast<int32_t>(rows.size()));
    rows.push_back({random.below(vocabulary), static_cast<int32_t>(s), position, parent, kWants[random.below(5)]});
  }
  return rows;
}

// A random path from the state on.
std::vector<int32_t> random_path(Random& random, const std::vector<Row>& rows, int32_t sequence) {
  std::vector<int32_t> path;
  int32_t at = kState;
  while (random.below(6) != 0) {
    std::vector<int32_t> children;
    for (size_t r = 0; r < rows.size(); ++r)
      if (rows[r].sequence == sequence && rows[r].parent == at) children.push_back(static_cast<int32_t>(r));
    if (children.empty()) break;
    at = children[static_cast<size_t>(random.below(static_cast<int32_t>(children.size())))];
    path.push_back(at);
  }
  return path;
}

void random_calls(const std::string& name, KvForm kv, uint64_t seed, int rounds) {
  const TinyModel tiny = load_tiny(name);
  Random random(seed);
  const StaticOptions options = small_options(kv, random.below(2) ? 16 : 32);
  Pair pair = compile(tiny.plan.program, tiny.weights, options);
  ASSERT_TRUE(pair.fixed);
  const size_t sequences = 1 + static_cast<size_t>(random.below(3));
  Twin twin(pair, sequences);
  const int32_t limit = options.buckets.back() - (kv == KvForm::dynamic ? options.rows : 0);
  for (int round = 0; round < rounds; ++round) {
    const std::string where = name + ", " + kv_form_name(kv) + ", seed " + std::to_string(seed) + ", round " + std::to_string(round);
    std::vector<Row> rows = random_call(random, twin, sequences, tiny.plan.program.vocabulary, random.below(4) == 0 ? 70 : 12);
    if (std::any_of(rows.begin(), rows.end(), [&](const Row& r) { return r.position >= limit; })) break;
    twin.run(rows, where, {"layer.0"});
    for (size_t s = 0; s < sequences; ++s)
      if (random.below(8) != 0) twin.commit(s, random_path(random, rows, static_cast<int32_t>(s)), where);
    if (sequences > 1 && random.below(10) == 0) twin.fork_from(0, 1);
    if (random.below(4) == 0) twin.compare_states(0, where);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(StaticUnit, random_calls_on_random_sequences_give_the_rows_of_the_plain_call) {
  uint64_t seed = 0;
  for (const std::string& name : one_of_each_family())
    for (KvForm kv : kForms)
      for (int i = 0; i < 2; ++i) {
        random_calls(name, kv, ++seed, 30);
        if (HasFatalFailure()) return;
      }
}

Outputs run_on(Model& model, State& state, const std::vector<Row>& rows) {
  State* states[] = {&state};
  Outputs out;
  Call call;
  call.rows = rows;
  call.states = states;
  call.out = &out;
  const Result<CallStats> stats = model.run(call);
  if (!stats.ok()) ADD_FAILURE() << stats.status().message();
  return out;
}

std::unique_ptr<Model> fp16_model(const TinyModel& tiny, KvForm kv, int32_t rows, std::vector<int32_t> buckets, std::unique_ptr<Unit>& unit) {
  StaticOptions o = small_options(kv, rows);
  o.rows = rows;
  o.buckets = std::move(buckets);
  o.evaluate.arithmetic = Arithmetic::f16;
  unit = std::move(make_static_unit(o)).value();
  return std::move(unit->compile(tiny.plan.program, tiny.weights)).value();
}

// Random trees whose paths are kept, against the same tokens row by row in other windows and buckets: equal to the bit.
void same_bits(const std::string& name, KvForm kv, uint64_t seed) {
  const TinyModel tiny = load_tiny(name);
  std::unique_ptr<Unit> units[2];
  const bool blocks = kv == KvForm::dynamic;
  const auto wild = fp16_model(tiny, kv, blocks ? 64 : 16, blocks ? std::vector<int32_t>{96, 160, 288} : std::vector<int32_t>{32, 64, 96, 224}, units[0]);
  const auto plain = fp16_model(tiny, KvForm::delta, 32, {224}, units[1]);
  const auto a = std::move(wild->make_state()).value(), b = std::move(plain->make_state()).value();
  const size_t vocabulary = static_cast<size_t>(tiny.plan.program.vocabulary);
  Random random(seed);
  while (a->length() < 75) {
    std::vector<Row> rows;
    for (int32_t i = 0, n = 1 + random.below(40); i < n; ++i) {
      const int32_t parent = i == 0 ? kState : random.below(3) != 0 ? i - 1 : random.below(i);
      rows.push_back({random.below(static_cast<int32_t>(vocabulary)), 0, parent == kState ? a->length() : rows[static_cast<size_t>(parent)].position + 1, parent, kWantLogits});
    }
    const Outputs tree = run_on(*wild, *a, rows);
    std::vector<int32_t> path = random_path(random, rows, 0);
    for (int32_t r : path) {
      const Outputs one = run_on(*plain, *b, {{rows[static_cast<size_t>(r)].token, 0, b->length(), kState, kWantLogits}});
      ASSERT_TRUE(b->commit(std::vector<int32_t>{0}).ok());
      const auto found = std::span(tree.logits).subspan(static_cast<size_t>(r) * vocabulary, vocabulary);
      ASSERT_TRUE(std::equal(found.begin(), found.end(), one.logits.begin())) << name << ", " << kv_form_name(kv) << ", seed " << seed << ", position " << b->length() - 1;
    }
    ASSERT_TRUE(a->commit(path).ok());
  }
  EXPECT_EQ(serialize(a->export_neutral()), serialize(b->export_neutral())) << name << ", " << kv_form_name(kv);
}

TEST(StaticUnit, a_tree_has_the_bits_of_single_rows_in_any_window_and_bucket) {
  for (const std::string& name : one_of_each_family())
    for (KvForm kv : kForms)
      for (uint64_t seed : {1u}) {
        same_bits(name, kv, seed);
        if (HasFatalFailure()) return;
      }
}

TEST(StaticUnit, every_tiny_model_equals_the_reference) {
  for (const std::string& name : all_tiny_models()) {
    const TinyModel tiny = load_tiny(name);
    Pair pair = compile(tiny.plan.program, tiny.weights, small_options(KvForm::place));
    ASSERT_TRUE(pair.fixed) << name;
    Twin twin(pair, 1);
    twin.run(chain(random_tokens(9, 40, tiny.plan.program.vocabulary), 0, kWantLogits), name);
    if (HasFatalFailure()) return;
  }
}

TEST(StaticUnit, attention_in_chunks_is_merged_exactly) {
  const TinyModel tiny = load_tiny("qwen3-bf16");
  StaticOptions options = small_options(KvForm::place);
  options.attention_chunks = 8;
  options.buckets = {512};
  Pair pair = compile(tiny.plan.program, tiny.weights, options);
  Twin twin(pair, 1);
  twin.run(chain(random_tokens(9, 300, tiny.plan.program.vocabulary), 0, kWantLogits), "chunks");
}

TEST(StaticUnit, a_context_beyond_the_largest_bucket_is_refused_with_both_numbers_and_changes_nothing) {
  const TinyModel tiny = load_tiny("lfm2-f32");
  Pair pair = compile(tiny.plan.program, tiny.weights, small_options(KvForm::place));
  const auto state = std::move(pair.fixed->make_state()).value();
  const auto tokens = random_tokens(3, 161, tiny.plan.program.vocabulary);
  run_chain(*pair.fixed, *state, std::span(tokens).first(160));
  State* states[] = {state.get()};
  const std::vector<Row> rows = chain(std::span(tokens).last(1), 160, kWantArgmax);
  Outputs out;
  Call call;
  call.rows = rows;
  call.states = states;
  call.out = &out;
  const Result<Ticket> ticket = pair.fixed->submit(call);
  ASSERT_FALSE(ticket.ok());
  EXPECT_NE(ticket.status().message().find("position 160"), std::string::npos) << ticket.status().message();
  EXPECT_NE(ticket.status().message().find("takes 160 rows"), std::string::npos) << ticket.status().message();
  EXPECT_EQ(state->length(), 160);
}

TEST(StaticUnit, a_state_moves_to_the_reference_unit_and_back) {
  const TinyModel tiny = load_tiny("lfm2-f32");
  Pair pair = compile(tiny.plan.program, tiny.weights, small_options(KvForm::place));
  const auto fixed = std::move(pair.fixed->make_state()).value(), back = std::move(pair.fixed->make_state()).value();
  const auto reference = std::move(pair.reference->make_state()).value();
  const auto tokens = random_tokens(3, 60, tiny.plan.program.vocabulary);
  run_chain(*pair.fixed, *fixed, std::span(tokens).first(37));
  std::string note = "none";
  ASSERT_TRUE(reference->import_neutral(fixed->export_neutral(), &note).ok());
  ASSERT_TRUE(back->import_neutral(reference->export_neutral(), &note).ok());
  EXPECT_EQ(note, "");
  const auto rest = std::span(tokens).subspan(37);
  const std::vector<float> expected = run_chain(*pair.reference, *reference, rest);
  expect_near(run_chain(*pair.fixed, *back, rest), expected, static_cast<size_t>(tiny.plan.program.vocabulary), "moved back");
  expect_near(run_chain(*pair.fixed, *fixed, rest), expected, static_cast<size_t>(tiny.plan.program.vocabulary), "stayed");
}

TEST(StaticUnit, functions_of_a_real_window_are_lint_clean_but_for_head_sizes_below_a_vector) {
  const TinyModel tiny = load_tiny("lfm2-f32");
  StaticOptions options;
  const Result<std::unique_ptr<Unit>> unit = make_static_unit(options);
  const auto model = std::move((*unit)->compile(tiny.plan.program, tiny.weights)).value();
  for (const LintFinding& f : lint(*static_lowered(*model))) EXPECT_STREQ(f.rule, "last-axis") << text(f);
}

TEST(StaticUnit, windows_and_buckets_of_no_use_are_refused) {
  StaticOptions options;
  options.buckets = {256, 128};
  EXPECT_NE(make_static_unit(options).status().message().find("bucket 128"), std::string::npos);
  options = {};
  options.kv = KvForm::dynamic;
  options.rows = 40;
  EXPECT_NE(make_static_unit(options).status().message().find("found 40"), std::string::npos);
}

}  // namespace
}  // namespace espalier::test
