// What users of other engines ran into, asked of the static unit: saved states, shifted taps, builds that fail.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "espalier/engine.h"
#include "tiny_models.h"
#include "units/static/static_unit.h"

namespace espalier::test {
namespace {

namespace fs = std::filesystem;
const std::string kDemo = std::string(ESPALIER_SOURCE_DIR) + "/models/demo";

std::unique_ptr<Model> compiled(const TinyModel& tiny, KvForm kv) {
  StaticOptions o;
  o.rows = 32;
  o.buckets = {64, 96};
  o.kv = kv;
  const std::unique_ptr<Unit> unit = std::move(make_static_unit(o)).value();
  return std::move(unit->compile(tiny.plan.program, tiny.weights)).value();
}

// A prompt, then a tree of which the second branch is kept: rows that no window has written yet.
std::unique_ptr<State> filled(Model& model, std::span<const int32_t> ids) {
  std::unique_ptr<State> state = std::move(model.make_state()).value();
  run_chain(model, *state, ids.first(37));
  std::vector<Row> rows = chain(ids.subspan(37, 2), 37, kWantArgmax);
  rows.push_back({ids[39], 0, 38, 0, kWantArgmax});
  rows.push_back({ids[40], 0, 39, 2, kWantArgmax});
  State* const states[] = {state.get()};
  Outputs out;
  EXPECT_TRUE(model.run({{Role::step, kNone}, rows, states, {}, 0, &out}).ok());
  const int32_t path[] = {0, 2, 3};
  EXPECT_TRUE(state->commit(path).ok());
  return state;
}

TEST(StaticFailures, L39_a_saved_state_goes_on_with_the_same_bits) {
  for (const KvForm kv : {KvForm::place, KvForm::delta})
    for (const std::string& name : one_of_each_family()) {
      const TinyModel tiny = load_tiny(name);
      const std::vector<int32_t> ids = random_tokens(9, 70, tiny.plan.program.vocabulary);
      const std::unique_ptr<Model> model = compiled(tiny, kv), restarted = compiled(tiny, kv);
      const std::unique_ptr<State> state = filled(*model, ids);
      const std::vector<std::byte> saved = serialize(state->export_neutral());
      const Result<NeutralState> loaded = deserialize(saved);
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      const std::unique_ptr<State> again = std::move(restarted->make_state()).value();
      std::string note;
      ASSERT_TRUE(again->import_neutral(*loaded, &note).ok());
      EXPECT_EQ(again->length(), 40);
      const std::span<const int32_t> rest = std::span(ids).subspan(41, 20);  // across a bucket's end
      EXPECT_EQ(run_chain(*restarted, *again, rest), run_chain(*model, *state, rest)) << name << ", " << kv_form_name(kv);
    }
}

TEST(StaticFailures, L39_a_state_without_its_frames_or_with_a_wrong_byte_is_refused) {
  const TinyModel tiny = load_tiny("lfm2-f32");
  const std::unique_ptr<Model> model = compiled(tiny, KvForm::place);
  const std::vector<int32_t> ids = random_tokens(9, 70, tiny.plan.program.vocabulary);
  const NeutralState whole = filled(*model, ids)->export_neutral();
  std::vector<std::byte> bytes = serialize(whole);
  for (size_t at : {size_t{3}, bytes.size() / 3, bytes.size() / 2, bytes.size() - 5}) {
    std::vector<std::byte> damaged = bytes;
    damaged[at] ^= std::byte{16};
    EXPECT_FALSE(deserialize(damaged).ok()) << at;
  }
  size_t frames = 0;
  for (size_t t = 0; t < whole.tensors.size(); ++t) {
    if (!whole.tensors[t].name.ends_with("frames")) continue;
    ++frames;
    const std::unique_ptr<State> state = std::move(model->make_state()).value();
    NeutralState without = whole, shorter = whole;
    without.tensors.erase(without.tensors.begin() + static_cast<ptrdiff_t>(t));
    shorter.tensors[t].data.resize(shorter.tensors[t].data.size() / 2);
    EXPECT_FALSE(state->import_neutral(without, nullptr).ok());
    EXPECT_FALSE(state->import_neutral(shorter, nullptr).ok());
    EXPECT_EQ(state->length(), 0);
  }
  EXPECT_GT(frames, 0u);
}

TEST(StaticFailures, L43_a_drafter_whose_taps_are_one_layer_off_is_refused_when_it_is_loaded) {
  std::string folder = (fs::temp_directory_path() / "espalier-taps-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  fs::copy(kDemo + "/drafter", folder, fs::copy_options::recursive);
  std::ifstream file(folder + "/config.json");
  std::stringstream text;
  text << file.rdbuf();
  std::string config = text.str();
  const size_t at = config.find("\"target_layer_ids\""), end = config.find(']', at);
  ASSERT_NE(at, std::string::npos);
  config.replace(at, end - at + 1, "\"target_layer_ids\": [2, 4, 6]");
  fs::remove(folder + "/config.json");
  std::ofstream(folder + "/config.json") << config;
  const Result<Engine> engine = Engine::open({.model = kDemo, .unit = "static", .buckets = "64,128", .drafter = folder, .cache = false});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().field(), "drafter");
  EXPECT_NE(engine.status().message().find(folder), std::string::npos) << engine.status().message();
  fs::remove_all(folder);
}

TEST(StaticFailures, L52_a_back_end_that_cannot_build_one_bucket_is_an_error_and_not_replaced) {
  const TinyModel tiny = load_tiny("lfm2-f32");
  StaticOptions o;
  o.buckets = {64, 96};
  const MakeBackend failing = [](const LoweredProgram& lowered, const Program&, const WeightSet&) -> Result<std::unique_ptr<StaticBackend>> {
    for (const LoweredFunction& f : lowered.functions)
      if (f.spec.bucket == 96) return Status(Code::unsupported, "function " + function_name(f.spec) + " could not be built");
    return Status(Code::internal, "there was no such bucket");
  };
  const std::unique_ptr<Unit> unit = std::move(make_static_unit(o, "static:failing", failing, true)).value();
  EXPECT_EQ(unit->describe().name, "static:failing");
  const Result<std::unique_ptr<Model>> model = unit->compile(tiny.plan.program, tiny.weights);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("_96_"), std::string::npos) << model.status().message();
}

TEST(StaticFailures, L52_buckets_that_are_of_no_use_are_refused_and_the_advice_works) {
  const std::string tiny = load_tiny("lfm2-f32").path;
  const auto open = [&](const std::string& buckets, int64_t context) { return Engine::open({.model = tiny, .unit = "static", .buckets = buckets, .context = context, .cache = false}); };
  for (const char* wrong : {"32", "64,32", "64,64", "0", "64,"}) {
    const Result<Engine> engine = open(wrong, 0);
    ASSERT_FALSE(engine.ok()) << wrong;
    EXPECT_EQ(engine.status().field(), "buckets") << engine.status().message();
  }
  const Result<Engine> engine = open("64,96", 128);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("shorten the context or give larger buckets"), std::string::npos);
  EXPECT_TRUE(open("64,96", 96).ok());
  EXPECT_TRUE(open("64,128", 128).ok());
  EXPECT_FALSE(Engine::open({.model = tiny, .unit = "static:none", .cache = false}).ok());
}

TEST(StaticFailures, L52_an_answer_says_which_unit_gave_it) {
  const Result<Engine> engine = Engine::open({.model = load_tiny("lfm2-f32").path, .unit = "static", .buckets = "64,96", .cache = false});
  ASSERT_TRUE(engine.ok());
  GenerateOptions options;
  options.max_tokens = 3;
  Prompt prompt;
  prompt.ids = {5, 6, 7};
  const Answer answer = std::move(std::move(engine->request(prompt, options)).value().run()).value();
  EXPECT_NE(engine->to_json(answer).find("\"static\""), std::string::npos) << engine->to_json(answer);
}

}  // namespace
}  // namespace espalier::test
