// Drafters and the demo model on the static unit: against the reference unit in fp32, and what fp16 changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/thread_team.h"
#include "tiny_drafters.h"
#include "units/reference/reference.h"
#include "units/static/static_unit.h"

namespace espalier::test {
namespace {

constexpr double kRelative = 1e-5;  // of the largest value: fp32 on both sides
constexpr double kTie = 0.03;       // two logits closer than this may change places in fp16

std::unique_ptr<Unit> static_unit(Arithmetic arithmetic, KvForm kv, std::vector<int32_t> buckets = {64, 96, 160}, ScalarType weights = ScalarType::f16) {
  StaticOptions o;
  o.rows = 32;
  o.buckets = std::move(buckets);
  o.kv = kv;
  o.weights = weights;
  o.evaluate = {arithmetic, 0, default_thread_count()};
  return std::move(make_static_unit(o)).value();
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  double largest = 0, worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
  }
  EXPECT_LE(worst, kRelative * largest) << where;
}

// Context in parts of which only the first rows are kept, with blocks in between.
std::vector<DraftedBlock> draft_on(Model& drafter, const TinyDrafter& tiny, const std::vector<float>& taps) {
  const std::unique_ptr<State> state = std::move(drafter.make_state()).value();
  std::vector<DraftedBlock> out;
  const size_t width = taps.size() / tiny.prompt.size();
  const size_t first = tiny.prompt.size() / 2;
  keep_context(drafter, *state, tiny.prompt, taps, 0, first);
  out.push_back(draft_block(drafter, *state, tiny.plan, tiny.anchor));
  // A fork of two branches at its second row: no window has written the branch that is kept.
  std::vector<Row> rows = chain(std::span(tiny.prompt).subspan(first, 3), state->length(), 0);
  rows.push_back(rows[1]);
  rows.push_back({tiny.prompt[first + 2], 0, rows[1].position + 1, 3, 0});
  std::vector<float> features(taps.begin() + static_cast<ptrdiff_t>(first * width), taps.begin() + static_cast<ptrdiff_t>((first + 3) * width));
  for (size_t r : {first + 1, first + 2}) features.insert(features.end(), taps.begin() + static_cast<ptrdiff_t>(r * width), taps.begin() + static_cast<ptrdiff_t>((r + 1) * width));
  State* states[] = {state.get()};
  const NamedTensor inputs[] = {{"taps", features.data(), static_cast<int32_t>(width)}};
  Outputs none;
  Call call;
  call.function.role = Role::context;
  call.rows = rows;
  call.states = states;
  call.inputs = inputs;
  call.out = &none;
  EXPECT_TRUE(drafter.run(call).ok());
  const int32_t path[] = {0, 3, 4};
  EXPECT_TRUE(state->commit(path).ok());
  out.push_back(draft_block(drafter, *state, tiny.plan, tiny.anchor));
  keep_context(drafter, *state, tiny.prompt, taps, first + 3, tiny.prompt.size());
  out.push_back(draft_block(drafter, *state, tiny.plan, tiny.anchor));
  return out;
}

TEST(StaticDrafter, every_tiny_drafter_equals_the_reference) {
  for (const std::string& name : all_tiny_drafters())
    for (KvForm kv : {KvForm::place, KvForm::delta}) {
      const TinyDrafter tiny = load_drafter(name);
      ASSERT_GE(tiny.prompt.size(), 8u);
      const std::unique_ptr<Unit> reference = make_reference_unit(), fixed = static_unit(Arithmetic::f32, kv);
      const DrafterPair a = compile_pair(*reference, tiny), b = compile_pair(*fixed, tiny);
      ASSERT_NE(b.drafter, nullptr);
      const std::vector<float> taps = tap_rows(*a.target, tiny.plan, tiny.prompt);
      expect_near(tap_rows(*b.target, tiny.plan, tiny.prompt), taps, name + ", taps");
      const std::vector<DraftedBlock> expected = draft_on(*a.drafter, tiny, taps), found = draft_on(*b.drafter, tiny, taps);
      for (size_t i = 0; i < expected.size(); ++i) {
        const std::string where = name + ", " + kv_form_name(kv) + ", block " + std::to_string(i);
        expect_near(found[i].logits, expected[i].logits, where + ", logits");
        expect_near(found[i].hidden, expected[i].hidden, where + ", hidden");
      }
    }
}

TEST(StaticDrafter, the_markov_function_gives_the_reference_s_best_tokens) {
  const TinyDrafter tiny = load_drafter("gated");
  const Function* markov = tiny.plan.model.program.find(Role::markov);
  ASSERT_NE(markov, nullptr);
  const int32_t rank = markov->values[static_cast<size_t>(markov->inputs[0].value)].width;
  Random random(4);
  std::vector<float> directions(static_cast<size_t>(rank) * 70);
  for (float& d : directions) d = static_cast<float>(random.below(2001) - 1000) / 1000.0f;
  const std::vector<Row> rows(70, {kNoToken, 0, 0, kState, kWantTopK});
  const NamedTensor inputs[] = {{"direction", directions.data(), rank}};
  std::vector<Outputs> out(2);
  const std::unique_ptr<Unit> units[] = {make_reference_unit(), static_unit(Arithmetic::f32, KvForm::place)};
  for (size_t i = 0; i < 2; ++i) {
    const DrafterPair pair = compile_pair(*units[i], tiny);
    const std::unique_ptr<State> state = std::move(pair.drafter->make_state()).value();
    State* const states[] = {state.get()};
    ASSERT_TRUE(pair.drafter->run({{Role::markov, kNone}, rows, states, inputs, 5, &out[i]}).ok());
  }
  ASSERT_EQ(out[1].top.size(), 350u);
  for (size_t i = 0; i < 350; ++i) EXPECT_NEAR(out[1].top[i].logit, out[0].top[i].logit, 1e-5f * std::fabs(out[0].top[i / 5 * 5].logit) + 1e-7f);
}

TEST(StaticDrafter, blocks_at_run_time_offsets_are_refused_for_a_drafter) {
  const TinyDrafter tiny = load_drafter("none");
  StaticOptions o;
  o.kv = KvForm::dynamic;
  const std::unique_ptr<Unit> unit = std::move(make_static_unit(o)).value();
  const Result<std::unique_ptr<Model>> model = unit->compile(tiny.plan.model.program, tiny.weights);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("function context"), std::string::npos) << model.status().message();
}

struct Demo {
  Checkpoint checkpoint = std::move(Checkpoint::open(std::string(ESPALIER_SOURCE_DIR) + "/models/demo")).value();
  ModelPlan plan = std::move(plan_model(checkpoint)).value();
  WeightSet weights = std::move(bind_weights(plan, checkpoint)).value();
};

std::vector<float> logits_on(Unit& unit, const Demo& demo, std::span<const int32_t> ids) {
  const std::unique_ptr<Model> model = std::move(unit.compile(demo.plan.program, demo.weights)).value();
  const std::unique_ptr<State> state = std::move(model->make_state()).value();
  return run_chain(*model, *state, ids);
}

// A prompt and its answer.
std::vector<int32_t> some_text(size_t line_wanted) {
  std::ifstream file(std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/demo/greedy-40.jsonl");
  std::vector<int32_t> ids;
  size_t at = 0;
  for (std::string line; std::getline(file, line); ++at) {
    if (at != line_wanted) continue;
    const Value v = std::move(parse_json(line)).value();
    for (const char* key : {"prompt_ids", "ids"})
      for (const Value& id : v.find(key)->as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  return ids;
}

TEST(StaticDemo, lowered_in_fp32_it_equals_the_reference) {
  const Demo demo;
  const std::vector<int32_t> ids = some_text(1);
  const std::unique_ptr<Unit> reference = make_reference_unit(static_cast<int>(default_thread_count()));
  const std::unique_ptr<Unit> fixed = static_unit(Arithmetic::f32, KvForm::place, {64, 512});
  const std::span<const int32_t> part = std::span(ids).first(std::min<size_t>(ids.size(), 100));
  expect_near(logits_on(*fixed, demo, part), logits_on(*reference, demo, part), "demo");
}

struct Agreement {
  size_t tokens = 0, ties = 0, differing = 0;
};

Agreement compare_choices(const std::vector<float>& found, const std::vector<float>& expected, size_t vocabulary) {
  Agreement out;
  for (size_t at = 0; at < expected.size(); at += vocabulary, ++out.tokens) {
    const auto row = std::span(expected).subspan(at, vocabulary);
    const int32_t a = best_id(row), b = best_id(std::span(found).subspan(at, vocabulary));
    if (a == b) continue;
    std::vector<float> sorted(row.begin(), row.end());
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
    ++(static_cast<double>(row[static_cast<size_t>(a)]) - static_cast<double>(sorted[1]) < kTie ? out.ties : out.differing);
  }
  return out;
}

TEST(StaticDemo, fp16_changes_a_choice_only_where_two_logits_are_almost_equal) {
  const Demo demo;
  const std::unique_ptr<Unit> reference = make_reference_unit(static_cast<int>(default_thread_count()));
  Agreement all;
  for (size_t line : {22u, 31u}) {  // the shortest
    const std::vector<int32_t> text = some_text(line);
    const std::span<const int32_t> ids = text;
    const std::vector<float> expected = logits_on(*reference, demo, ids);
    const std::unique_ptr<Unit> fixed = static_unit(Arithmetic::f16, KvForm::place, {64, 512});
    const Agreement one = compare_choices(logits_on(*fixed, demo, ids), expected, static_cast<size_t>(demo.plan.program.vocabulary));
    all.tokens += one.tokens;
    all.ties += one.ties;
    all.differing += one.differing;
  }
  EXPECT_EQ(all.differing, 0u);
  EXPECT_LE(all.ties * 100, all.tokens);
  RecordProperty("tokens", static_cast<int>(all.tokens));
  RecordProperty("ties", static_cast<int>(all.ties));
}

// The squares of the demo model's largest activations do not fit fp16: the reason for NormForm::scaled.
TEST(StaticDemo, plain_norms_overflow_in_fp16_and_the_report_names_the_op) {
  const Demo demo;
  const std::vector<int32_t> text = some_text(22);
  std::string report[2];
  for (NormForm norm : {NormForm::plain, NormForm::scaled}) {
    StaticOptions o;
    o.buckets = {128};
    o.norm = norm;
    o.evaluate = {Arithmetic::f16, 0, default_thread_count()};
    const std::unique_ptr<Unit> unit = std::move(make_static_unit(o)).value();
    const std::unique_ptr<Model> model = std::move(unit->compile(demo.plan.program, demo.weights)).value();
    const std::unique_ptr<State> state = std::move(model->make_state()).value();
    run_chain(*model, *state, std::span(text).first(128));
    for (std::istringstream lines(static_range_report(*model)); !lines.eof();) {
      std::string line;
      std::getline(lines, line);
      if (line.find(": 0 overflows") == std::string::npos && line.find(" overflows") != std::string::npos) report[norm == NormForm::scaled] += line + "\n";
    }
  }
  EXPECT_NE(report[0].find("rms_norm mul: "), std::string::npos);
  EXPECT_EQ(report[1], "");
}

TEST(StaticDemo, what_fp16_flushes_is_counted_by_op) {
  const Demo demo;
  StaticOptions o;
  o.buckets = {64};
  o.evaluate = {Arithmetic::f16, 6.1e-5f, default_thread_count()};
  const std::unique_ptr<Unit> unit = std::move(make_static_unit(o)).value();
  const std::unique_ptr<Model> model = std::move(unit->compile(demo.plan.program, demo.weights)).value();
  EXPECT_EQ(static_range_report(*model), "");
  const std::unique_ptr<State> state = std::move(model->make_state()).value();
  const std::vector<int32_t> text = some_text(2);
  run_chain(*model, *state, std::span(text).first(20));
  const std::string report = static_range_report(*model);
  EXPECT_NE(report.find("layer 0 rms_norm"), std::string::npos) << report.substr(0, 2000);
}

TEST(StaticDemo, int8_weights_and_the_runtime_s_arithmetic_stay_close) {
  const Demo demo;
  const std::vector<int32_t> text = some_text(2);
  const std::span<const int32_t> ids = std::span(text).first(32);
  const std::vector<float> expected = logits_on(*static_unit(Arithmetic::f32, KvForm::place, {64}), demo, ids);
  for (const auto& [arithmetic, weights] : {std::pair{Arithmetic::coreai, ScalarType::f16}, std::pair{Arithmetic::f16, ScalarType::i8}}) {
    const std::vector<float> found = logits_on(*static_unit(arithmetic, KvForm::place, {64}, weights), demo, ids);
    double error = 0, size = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
      size += std::pow(static_cast<double>(expected[i]), 2);
    }
    EXPECT_LE(std::sqrt(error / size), 0.05);
    EXPECT_GT(error, 0);
  }
}

}  // namespace
}  // namespace espalier::test
