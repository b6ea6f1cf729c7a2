// The benches of drafting: that they run, compare texts, and count what they say. No time is asserted.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "measure/bench_prompts.h"
#include "measure/draft_bench.h"
#include "measure/oracle_bench.h"
#include "measure/profile.h"
#include "measure/sequences_bench.h"
#include "measure/synthetic_state.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
const std::string kSource = ESPALIER_SOURCE_DIR;
const std::string kTiny = kSource + "/tests/fixtures/models/lfm2-f32";
const std::string kDemo = kSource + "/models/demo";

Engine open(const std::string& model, bool cache = false, const std::string& unit = "cpu") {
  auto engine = Engine::open({.model = model, .unit = unit, .threads = 1, .cache = cache});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return *engine;
}

OracleTrace trace() { return {"a test", {{0.7, 0.1, 0.05}, {0.6, 0.2}, {0.5, 0.1}, {0.9}}}; }

TEST(OracleBench, every_width_gives_plain_decodings_text_and_the_traced_shares_come) {
  const Engine engine = open(kTiny);
  OracleBenchOptions o;
  o.modes = {"off", "chain:4", "tree:8", "tree:64", "auto"};
  o.depth = 40;
  o.tokens = 80;
  o.rounds = 2;
  const auto r = bench_oracle(*engine.impl(), trace(), o);
  ASSERT_TRUE(r.ok()) << r.status().message();
  const auto& rows = r->find("rows")->as_array();
  ASSERT_EQ(rows.size(), 5u);
  for (const Value& row : rows) EXPECT_GT(row.find("tokens_per_second")->as_double(), 0);
  // 1 + 0.7 + 0.7 * 0.6 + ... for chains; more with everything that the trace has.
  const double chain = rows[1].find("tokens_per_cycle")->as_double(), wide = rows[3].find("tokens_per_cycle")->as_double();
  EXPECT_NEAR(chain, 2.52, 0.8);
  EXPECT_NEAR(rows[1].find("promised_per_cycle")->as_double(), 2.52, 0.1);  // but for the last cycles of a round
  EXPECT_GT(wide, chain);
  EXPECT_NE(oracle_text(*r).find("auto reaches"), std::string::npos);
}

TEST(OracleBench, the_drafters_own_calls_are_made_beside_the_oracle) {
  const Engine engine = open(kDemo);
  OracleBenchOptions o;
  o.modes = {"tree:8"};
  o.depth = 130;  // more than a page of K/V
  o.tokens = 20;
  o.rounds = 1;
  const auto r = bench_oracle(*engine.impl(), trace(), o);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_GT(r->find("rows")->as_array()[1].find("ms_per_cycle")->find("draft")->as_double(), 0);
  o.depth = 1 << 22;
  EXPECT_FALSE(bench_oracle(*engine.impl(), trace(), o).ok());
}

TEST(OracleTrace, what_a_file_says_is_checked) {
  const auto refused = [](const char* text) { return !read_trace(text, "file").ok(); };
  EXPECT_TRUE(refused("{"));
  EXPECT_TRUE(refused("{}"));
  EXPECT_TRUE(refused(R"({"hits": []})"));
  EXPECT_TRUE(refused(R"({"hits": [[]]})"));
  EXPECT_TRUE(refused(R"({"hits": [[0.7, 0.4]]})"));
  EXPECT_TRUE(refused(R"({"hits": [[-0.1]]})"));
  const auto good = read_trace(R"({"from": "x", "hits": [[0.1, 0.6], [0.5]]})", "file");
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->hits[0], (std::vector<double>{0.6, 0.1}));
}

TEST(OracleSource, a_place_off_the_true_path_gets_wrong_tokens_only) {
  std::vector<int32_t> truth(50);
  std::iota(truth.begin(), truth.end(), 100);
  const OracleTrace t = trace();
  OracleSource oracle(t, truth, 1000, nullptr);
  oracle.begin(std::span(truth).first(10));
  std::vector<Proposal> out;
  const int32_t wrong[] = {5};
  oracle.propose({0, kRoot, wrong}, 32, out);
  ASSERT_EQ(out.size(), 2u);
  for (const Proposal& p : out) EXPECT_NE(p.token, truth[11]);
  EXPECT_NE(out[0].token, out[1].token);
}

TEST(SyntheticState, its_text_is_held_and_calls_run_behind_it) {
  const Engine engine = open(kTiny);
  Engine::Impl& impl = *engine.impl();
  const auto state = std::move(impl.model->make_state()).value();
  ASSERT_TRUE(hold_synthetic(impl.plan.program, *state, 200, impl.info.vocabulary).ok());
  EXPECT_EQ(state->length(), 200);
  EXPECT_EQ(state->tokens()[199], synthetic_token(199, impl.info.vocabulary));
}

TEST(SequencesBench, texts_equal_those_alone) {
  const Engine engine = open(kDemo);
  SequencesBenchOptions o;
  o.sequences = {1, 3};
  o.tokens = 12;
  o.rounds = 1;
  for (const char* mode : {"off", "auto"}) {
    o.mode = mode;
    const auto r = bench_sequences(*engine.impl(), {}, o);
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->find("rows")->as_array()[1].find("tokens")->as_int(), 36);
  }
  o.sequences = {};
  EXPECT_FALSE(bench_sequences(*engine.impl(), {}, o).ok());
}

TEST(DraftBench, modes_are_compared_counted_and_told) {
  const Engine engine = open(kDemo);
  const auto prompts = read_bench_prompts(*engine.impl(), "{\"messages\": [{\"role\": \"user\", \"content\": \"Count to six.\"}]}\n\n{\"prompt_ids\": [1, 6, 99, 105, 338]}\n", "lines");
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 2u);
  DraftBenchOptions o;
  o.modes = {"chain:3", "auto"};
  o.rounds = 2;
  o.max_tokens = 16;
  o.traced = "chain:3";
  const auto bench = bench_drafts(*engine.impl(), *prompts, o);
  ASSERT_TRUE(bench.ok()) << bench.status().message();
  EXPECT_EQ(bench->modes, (std::vector<std::string>{"off", "chain:3", "auto"}));
  ASSERT_EQ(bench->tables.size(), 2u);
  const DraftCell& chain = bench->tables[0].cells.at("chain:3").at("all");
  EXPECT_EQ(chain.answers, 2);
  EXPECT_EQ(chain.round_ms.size(), 2u);
  EXPECT_EQ(chain.stats.tokens, chain.tokens);
  EXPECT_GT(ratio_of(bench->tables[0].cells.at("off").at("all"), chain).median, 0);
  EXPECT_FALSE(bench->trace.trace("x").hits.empty());
  EXPECT_NE(drafts_text(*bench).find("chain:3"), std::string::npos);
  EXPECT_EQ(drafts_json(*bench).find("drafts")->as_array().size(), 2u * 3u * (bench->tables[0].cells.at("off").size() + bench->tables[1].cells.at("off").size()) / 2u);
  o.sources = "else";
  EXPECT_FALSE(bench_drafts(*engine.impl(), *prompts, o).ok());
  EXPECT_FALSE(read_bench_prompts(*engine.impl(), "{\"prompt_ids\": [-1]}", "lines").ok());
}

class Profile : public testing::Test {
 protected:
  Profile() : folder_(fs::temp_directory_path() / ("espalier-profile-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    setenv("ESPALIER_CACHE", folder_.c_str(), 1);
  }
  ~Profile() override {
    unsetenv("ESPALIER_CACHE");
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  fs::path folder_;
};

TEST_F(Profile, what_was_measured_is_kept_and_an_engine_starts_from_it) {
  ProfileOptions o;
  o.contexts = {0, 128, 1e8};
  o.rounds = 1;
  const Engine first = open(kDemo, true);
  EXPECT_EQ(first.info().profile, "");
  const auto measured = measure_profile(*first.impl(), o);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_EQ(measured->samples.size(), 128u);
  ASSERT_EQ(measured->drafter.size(), 2u);
  ASSERT_TRUE(store_profile(*measured).ok());
  const auto loaded = load_profile(measured->key);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->samples.size(), measured->samples.size());
  EXPECT_EQ(loaded->samples[5].ms, measured->samples[5].ms);
  EXPECT_EQ(loaded->drafter[1].block_ms, measured->drafter[1].block_ms);
  EXPECT_EQ(open(kDemo, true).info().profile, *profile_path(measured->key));
  EXPECT_EQ(open(kDemo, false).info().profile, "");
  EXPECT_EQ(open(kTiny, true).info().profile, "");
  EXPECT_NE(profile_text(*measured, "x").find("64 rows"), std::string::npos);
}

TEST_F(Profile, a_damaged_or_foreign_one_is_a_notice) {
  MachineProfile p{profile_key(*open(kTiny, true).impl()), {{1, 0, 1.0}, {64, 0, 2.0}}, {}};
  ASSERT_TRUE(store_profile(p).ok());
  const std::string path = *profile_path(p.key);
  EXPECT_EQ(open(kTiny, true).info().profile, path);
  ProfileKey other = p.key;
  other.threads += 1;
  EXPECT_EQ(load_profile(other).status().code(), Code::not_found);
  fs::copy_file(path, *profile_path(other));  // a file under another machine's name
  EXPECT_EQ(load_profile(other).status().code(), Code::corrupt);
  std::string text;
  std::getline(std::ifstream(path), text, '\0');
  for (const size_t length : {size_t{0}, text.size() / 2, text.size() - 3}) {
    std::ofstream(path, std::ios::trunc) << text.substr(0, length);
    const Engine engine = open(kTiny, true);
    EXPECT_EQ(engine.info().profile, "");
    ASSERT_FALSE(engine.info().notices.empty());
    EXPECT_NE(engine.info().notices.back().find(path), std::string::npos);
  }
  for (const char* wrong : {"\"rows\": 65", "\"rows\": 0"}) {
    std::string changed = text;
    changed.replace(changed.find("\"rows\": 64"), 10, wrong);
    std::ofstream(path, std::ios::trunc) << changed;
    EXPECT_EQ(load_profile(p.key).status().code(), Code::corrupt) << wrong;
  }
}

}  // namespace
}  // namespace espalier
