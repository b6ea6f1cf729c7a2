// Drafters against PyTorch on both units, and against themselves where bits are promised.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "base/file_map.h"
#include "base/json.h"
#include "convert/cache.h"
#include "decode/markov_head.h"
#include "engine/drafter_selfcheck.h"
#include "engine/markov_finder.h"
#include "tiny_drafters.h"
#include "units/cpu/cpu_unit.h"
#include "units/reference/reference.h"

namespace espalier::test {
namespace {

float largest(const std::vector<float>& v) {
  float m = 0;
  for (float x : v) m = std::max(m, std::fabs(x));
  return m;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float m = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) m = std::max(m, std::fabs(a[i] - b[i]));
  return m;
}

double relative_rms(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / size);
}

struct Chain {
  std::vector<int32_t> drafts;
  std::vector<float> logits, confidence;
};

// Greedy over the whole vocabulary, each slot after the token of the slot before.
Chain greedy_chain(const DrafterPlan& plan, const DraftedBlock& block, int32_t anchor) {
  const MarkovHead head(plan.head);
  const size_t vocabulary = static_cast<size_t>(plan.head.vocabulary), hidden = static_cast<size_t>(plan.head.hidden);
  Chain out;
  MarkovHead::Lead before, lead;
  std::vector<float> logits(vocabulary);
  int32_t token = anchor;
  for (size_t slot = 0; slot < static_cast<size_t>(plan.block_size); ++slot) {
    const auto row = std::span(block.hidden).subspan(slot * hidden, hidden);
    out.confidence.push_back(head.confidence(token, row));
    head.lead(token, row, slot == 0 ? nullptr : &before, lead);
    head.bias(lead, logits);
    for (size_t v = 0; v < vocabulary; ++v) logits[v] += block.logits[slot * vocabulary + v];
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    token = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    out.drafts.push_back(token);
    std::swap(before, lead);
  }
  return out;
}

DraftedBlock run_pair(const DrafterPair& pair, const TinyDrafter& tiny) {
  const std::unique_ptr<State> state = pair.drafter->make_state().value();
  keep_context(*pair.drafter, *state, tiny.prompt, tap_rows(*pair.target, tiny.plan, tiny.prompt), 0, tiny.prompt.size());
  return draft_block(*pair.drafter, *state, tiny.plan, tiny.anchor);
}

class EachDrafter : public testing::TestWithParam<std::string> {};

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TEST_P(EachDrafter, reference_unit_equals_pytorch) {
  const TinyDrafter tiny = load_drafter(GetParam());
  const std::unique_ptr<Unit> unit = make_reference_unit();
  const DrafterPair pair = compile_pair(*unit, tiny);
  ASSERT_NE(pair.drafter, nullptr);
  const DraftedBlock block = run_pair(pair, tiny);
  const Chain chain = greedy_chain(tiny.plan, block, tiny.anchor);
  EXPECT_EQ(chain.drafts, tiny.drafts);
  EXPECT_LE(largest_difference(block.hidden, tiny.hidden), 1e-4f * largest(tiny.hidden));
  EXPECT_LE(largest_difference(block.logits, tiny.base_logits), 1e-4f * largest(tiny.base_logits));
  EXPECT_LE(largest_difference(chain.logits, tiny.chain_logits), 1e-4f * largest(tiny.chain_logits));
  EXPECT_LE(largest_difference(chain.confidence, tiny.confidence), 1e-4f);
}

// int8 weights and activations, target and drafter one after the other. Measured: 0.025 to 0.073 of the logits, rnn 0.12, since
// random weights amplify what is rounded (the trained drafter of the demo model: 0.03). The same drafter with the wrong rotation
// is far beyond the bound.
TEST_P(EachDrafter, cpu_unit_is_close_to_pytorch) {
  TinyDrafter tiny = load_drafter(GetParam());
  CpuOptions options;
  options.threads = 2;
  const std::unique_ptr<CpuUnit> unit = CpuUnit::make(options).value();
  const auto error = [&] {
    const DrafterPair pair = compile_pair(*unit, tiny);
    return pair.drafter == nullptr ? 1e9 : relative_rms(run_pair(pair, tiny).logits, tiny.base_logits);
  };
  const double right = error();
  RecordProperty("relative_rms", std::to_string(right));
  EXPECT_LE(right, 0.15);
  RopeSpec& rope = tiny.plan.model.program.ropes[0];
  rope.interleaved = !rope.interleaved;
  const double wrong = error();
  RecordProperty("wrong_rotation", std::to_string(wrong));
  EXPECT_GT(wrong, 0.3);
}

void expect_equal_bits(const DraftedBlock& a, const DraftedBlock& b) {
  EXPECT_EQ(a.logits, b.logits);
  EXPECT_EQ(a.hidden, b.hidden);
}

void context_in_chunks(Unit& unit, const TinyDrafter& tiny) {
  const DrafterPair pair = compile_pair(unit, tiny);
  ASSERT_NE(pair.drafter, nullptr);
  const std::vector<float> taps = tap_rows(*pair.target, tiny.plan, tiny.prompt);
  std::vector<std::byte> whole_state;
  DraftedBlock whole;
  for (size_t chunk : {tiny.prompt.size(), size_t{3}, size_t{1}}) {
    const std::unique_ptr<State> state = pair.drafter->make_state().value();
    for (size_t at = 0; at < tiny.prompt.size(); at += chunk) {
      keep_context(*pair.drafter, *state, tiny.prompt, taps, at, std::min(at + chunk, tiny.prompt.size()));
      if (chunk == 3) draft_block(*pair.drafter, *state, tiny.plan, tiny.anchor);  // blocks in between leave no trace
    }
    const std::vector<std::byte> bytes = serialize(state->export_neutral());
    const DraftedBlock block = draft_block(*pair.drafter, *state, tiny.plan, tiny.anchor);
    EXPECT_EQ(serialize(state->export_neutral()), bytes) << "a block keeps nothing";
    EXPECT_EQ(state->length(), static_cast<int32_t>(tiny.prompt.size()));
    if (whole_state.empty()) {
      whole_state = bytes;
      whole = block;
      continue;
    }
    EXPECT_EQ(bytes, whole_state) << "chunks of " << chunk;
    expect_equal_bits(block, whole);
  }
}

TEST_P(EachDrafter, context_in_chunks_gives_equal_bits_and_a_block_keeps_nothing) {
  const TinyDrafter tiny = load_drafter(GetParam());
  const std::unique_ptr<Unit> reference = make_reference_unit();
  context_in_chunks(*reference, tiny);
  for (KvType kv : {KvType::f16, KvType::i8}) {
    CpuOptions options;
    options.threads = 2;
    options.kv = kv;
    const std::unique_ptr<CpuUnit> cpu = CpuUnit::make(options).value();
    context_in_chunks(*cpu, tiny);
  }
}

// Two sequences in one call: a block sees the rows of its own.
TEST_P(EachDrafter, blocks_of_two_sequences_in_one_call_equal_their_own_calls) {
  const TinyDrafter tiny = load_drafter(GetParam());
  CpuOptions options;
  options.threads = 1;
  const std::unique_ptr<CpuUnit> unit = CpuUnit::make(options).value();
  const DrafterPair pair = compile_pair(*unit, tiny);
  ASSERT_NE(pair.drafter, nullptr);
  const std::vector<float> taps = tap_rows(*pair.target, tiny.plan, tiny.prompt);
  std::unique_ptr<State> states[] = {pair.drafter->make_state().value(), pair.drafter->make_state().value()};
  const size_t lengths[] = {tiny.prompt.size(), 5};
  std::vector<float> alone;
  std::vector<Row> rows;
  for (size_t s = 0; s < 2; ++s) {
    keep_context(*pair.drafter, *states[s], tiny.prompt, taps, 0, lengths[s]);
    const DraftedBlock block = draft_block(*pair.drafter, *states[s], tiny.plan, tiny.anchor);
    alone.insert(alone.end(), block.logits.begin(), block.logits.end());
    const int32_t first = static_cast<int32_t>(rows.size());
    for (int32_t i = 0; i < tiny.plan.block_size; ++i)
      rows.push_back({i == 0 ? tiny.anchor : tiny.plan.mask_token, static_cast<int32_t>(s), states[s]->length() + i, i == 0 ? kState : first + i - 1, kWantLogits});
  }
  State* both[] = {states[0].get(), states[1].get()};
  Outputs out;
  Call call;
  call.function.role = Role::block;
  call.rows = rows;
  call.states = both;
  call.out = &out;
  ASSERT_TRUE(pair.drafter->run(call).ok());
  EXPECT_EQ(out.logits, alone);
}

// Lists of the unit's choosing, exact biases: where they hold the same ids they hold the same bits.
TEST_P(EachDrafter, a_unit_finds_the_best_biases) {
  const TinyDrafter tiny = load_drafter(GetParam());
  const std::unique_ptr<Unit> reference = make_reference_unit();
  CpuOptions options;
  options.threads = 2;
  const std::unique_ptr<CpuUnit> cpu = CpuUnit::make(options).value();
  std::vector<int32_t> tokens = tiny.drafts;
  tokens.push_back(tiny.anchor);
  for (Unit* unit : {reference.get(), static_cast<Unit*>(cpu.get())}) {
    const DrafterPair pair = compile_pair(*unit, tiny);
    ASSERT_NE(pair.drafter, nullptr);
    MarkovHead scanned(tiny.plan.head), found(tiny.plan.head);
    std::mutex turns;
    const MarkovHead::Finder finder = markov_finder(*pair.drafter, turns, 0);
    ASSERT_EQ(finder != nullptr, tiny.plan.head.kind != MarkovKind::none);
    size_t calls = 0;
    if (finder != nullptr)
      found.use([&](std::span<const MarkovHead::Lead> leads) {
        ++calls;
        return finder(leads);
      });
    found.prepare(tokens);
    for (int32_t token : tokens) {
      const auto expected = scanned.top(token), top = found.top(token);
      ASSERT_EQ(top.size(), expected.size());
      size_t same = 0;
      for (const TopEntry& e : expected) same += static_cast<size_t>(std::count(top.begin(), top.end(), e));
      EXPECT_GE(same, unit == reference.get() ? expected.size() : expected.size() * 15 / 16) << token;
    }
    EXPECT_EQ(calls, finder != nullptr ? 1u : 0u) << "one call for all tokens, none for those that are known";
  }
}

INSTANTIATE_TEST_SUITE_P(, EachDrafter, testing::ValuesIn(all_tiny_drafters()), test_name);

class DrafterCache : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_), nullptr);
    setenv("ESPALIER_CACHE", folder_, 1);
  }
  void TearDown() override {
    unsetenv("ESPALIER_CACHE");
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
    EXPECT_FALSE(error) << error.message();
  }
  char folder_[32] = "/tmp/espalier-drafter-XXXXXX";
};

TEST_F(DrafterCache, packed_weights_are_cached_and_share_the_targets_table) {
  for (const char* name : {"vanilla-interleaved", "own-tables", "gguf-q8_0"}) {
    const TinyDrafter tiny = load_drafter(name);
    const Program& program = tiny.plan.model.program;
    ThreadTeam team(1);
    const PackedModel target = packed_model(*tiny.target.checkpoint, tiny.target.plan, WeightsForm::int8, team, {}).value();
    for (bool second : {false, true}) {
      const Result<PackedModel> packed = packed_drafter(*tiny.checkpoint, tiny.plan, tiny.target.plan.program, target.weights, WeightsForm::int8, team, {});
      ASSERT_TRUE(packed.ok()) << packed.status().message();
      EXPECT_EQ(packed->from_cache, second);
      size_t shared = 0;
      for (size_t i = 0; i < program.weights.size(); ++i)
        for (const PackedWeights::Entry& theirs : target.weights.entries)
          shared += theirs.matrix.data != nullptr && packed->weights.entries[i].matrix.data == theirs.matrix.data;
      EXPECT_EQ(shared, name == std::string("own-tables") ? 0u : 1u) << name;
    }
  }
}

// ---- the demo model's own drafter

struct Demo {
  std::unique_ptr<Checkpoint> target, drafter;
  ModelPlan target_plan;
  DrafterPlan plan;
  Value selfcheck;
};

const std::string kDemo = std::string(ESPALIER_SOURCE_DIR) + "/models/demo";

Demo load_demo() {
  Demo out;
  out.target = std::make_unique<Checkpoint>(Checkpoint::open(kDemo).value());
  out.drafter = std::make_unique<Checkpoint>(Checkpoint::open(kDemo + "/drafter").value());
  out.target_plan = plan_model(*out.target).value();
  Result<DrafterPlan> plan = plan_drafter(*out.drafter, out.target_plan.program);
  if (!plan.ok()) ADD_FAILURE() << plan.status().message();
  out.plan = std::move(plan).value();
  const FileMap file = FileMap::open(kDemo + "/drafter/selfcheck.json").value();
  out.selfcheck = parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}).value();
  return out;
}

TEST(DemoDrafter, reference_unit_drafts_what_the_selfcheck_says) {
  const Demo demo = load_demo();
  const std::unique_ptr<Unit> unit = make_reference_unit(2);
  const WeightSet weights = bind_weights(demo.target_plan, *demo.target).value();
  const WeightSet drafter_weights = bind_drafter_weights(demo.plan, *demo.drafter, demo.target_plan.program, weights).value();
  const std::unique_ptr<Model> target = unit->compile(demo.target_plan.program, weights).value();
  const std::unique_ptr<Model> drafter = unit->compile(demo.plan.model.program, drafter_weights).value();
  const SelfcheckReport report = run_selfcheck(demo.selfcheck, *target, *drafter, demo.plan).value();
  EXPECT_EQ(report.equal_drafts, 9);
  EXPECT_LE(report.logit_error, 1e-4);
  EXPECT_TRUE(check_drafter(kDemo + "/drafter", *target, *drafter, demo.plan, kExactBounds).ok());
}

struct CpuPair {
  std::unique_ptr<CpuUnit> unit;
  std::unique_ptr<Model> target, drafter;
};

CpuPair demo_on_cpu(const Demo& demo, WeightsForm form, const Program& drafter_program) {
  CpuPair out;
  CpuOptions options;
  options.threads = 2;
  out.unit = CpuUnit::make(options).value();
  ThreadTeam team(1);
  PackedModel target = packed_model(*demo.target, demo.target_plan, form, team, {}, false).value();
  PackedModel drafter = packed_drafter(*demo.drafter, demo.plan, demo.target_plan.program, target.weights, form, team, {}, false).value();
  out.target = out.unit->compile_packed(demo.target_plan.program, std::move(target.weights)).value();
  out.drafter = out.unit->compile_packed(drafter_program, std::move(drafter.weights)).value();
  return out;
}

TEST(DemoDrafter, cpu_unit_passes_the_selfcheck_and_refuses_wrong_taps) {
  const Demo demo = load_demo();
  for (WeightsForm form : {WeightsForm::automatic, WeightsForm::int4}) {
    const CpuPair pair = demo_on_cpu(demo, form, demo.plan.model.program);
    const SelfcheckReport report = run_selfcheck(demo.selfcheck, *pair.target, *pair.drafter, demo.plan).value();
    EXPECT_LE(report.logit_error, form == WeightsForm::int4 ? 0.35 : 0.035);
    // The third and the fourth draft lead by 0.03 and 0.05 only, which int4 weights turn; they are not refused for it.
    EXPECT_EQ(report.equal_drafts, form == WeightsForm::int4 ? 7 : 9);
    EXPECT_TRUE(check_drafter(kDemo + "/drafter", *pair.target, *pair.drafter, demo.plan, kQuantisedBounds).ok());
    for (const std::vector<int32_t>& taps : {std::vector<int32_t>{0, 2, 4}, {2, 4, 6}, {1, 3, 4}, {3, 1, 5}}) {
      DrafterPlan wrong = demo.plan;
      wrong.tap_layers = taps;
      const auto t0 = std::chrono::steady_clock::now();
      const Status status = check_drafter(kDemo + "/drafter", *pair.target, *pair.drafter, wrong, kQuantisedBounds);
      const auto t1 = std::chrono::steady_clock::now();
      EXPECT_NE(status.message().find("target_layer_ids"), std::string::npos) << taps[0] << " " << status.message();
      std::printf("wrong taps refused in %.1f ms\n", std::chrono::duration<double, std::milli>(t1 - t0).count());
    }
  }
}

TEST(DemoDrafter, cpu_unit_refuses_the_wrong_rotation) {
  const Demo demo = load_demo();
  Program program = demo.plan.model.program;
  program.ropes[0].interleaved = false;
  const CpuPair pair = demo_on_cpu(demo, WeightsForm::automatic, program);
  EXPECT_FALSE(check_drafter(kDemo + "/drafter", *pair.target, *pair.drafter, demo.plan, kQuantisedBounds).ok());
}

TEST(DemoDrafter, a_damaged_selfcheck_is_refused_and_a_missing_one_is_not) {
  const Demo demo = load_demo();
  const CpuPair pair = demo_on_cpu(demo, WeightsForm::automatic, demo.plan.model.program);
  EXPECT_TRUE(check_drafter(kDemo, *pair.target, *pair.drafter, demo.plan, kQuantisedBounds).ok());
  for (const char* key : {"prompt_ids", "anchor", "drafts", "base_logits_top", "base_logits_logsumexp"})
    for (const Value& bad : {Value(), Value(-1), Value("x"), Value::array(), Value::object(), Value(Value::Array{Value(int64_t{1} << 40)}), Value(Value::Array(9, Value::object()))}) {
      Value file = demo.selfcheck;
      file.set(key, bad);
      const Result<SelfcheckReport> report = run_selfcheck(file, *pair.target, *pair.drafter, demo.plan);
      ASSERT_FALSE(report.ok()) << key;
      EXPECT_NE(report.status().message().find(key), std::string::npos) << report.status().message();
    }
}

}  // namespace
}  // namespace espalier::test
