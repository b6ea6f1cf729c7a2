// Calls that an answer of the demo model takes, against a replay in PyTorch (tools/oracle/demo_replay.py) with the same candidates
// and the same order. Where the greedy text is the replay's, chains and trees are equal call by call on the reference unit, with
// probabilities as the drafter gives them; as the product runs, calibrated along the way and on the CPU unit, sums are near.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "measure/bench_prompts.h"
#include "measure/draft_bench.h"

namespace espalier {
namespace {

const std::string kSource = ESPALIER_SOURCE_DIR;

#ifdef ESPALIER_ALL_PROMPTS
constexpr size_t kPrompts = 40;
#else
constexpr size_t kPrompts = 6;
#endif

struct Case {
  Value prompt, replay;
};

std::vector<Value> lines_of(const char* name) {
  std::vector<Value> out;
  std::ifstream file(kSource + "/tests/fixtures/demo/" + name);
  for (std::string line; std::getline(file, line);) out.push_back(std::move(parse_json(line)).value());
  return out;
}

// The shortest prompts first.
std::vector<Case> cases() {
  const std::vector<Value> prompts = lines_of("greedy-40.jsonl"), replays = lines_of("replay-40.jsonl");
  EXPECT_EQ(prompts.size(), 40u);
  EXPECT_EQ(replays.size(), 40u);
  std::vector<Case> out;
  for (size_t i = 0; i < std::min(prompts.size(), replays.size()); ++i) out.push_back({prompts[i], replays[i]});
  std::sort(out.begin(), out.end(), [](const Case& a, const Case& b) { return a.prompt.find("prompt_ids")->as_array().size() < b.prompt.find("prompt_ids")->as_array().size(); });
  out.resize(std::min(out.size(), kPrompts));
  return out;
}

struct Sums {
  int64_t turns = 0, tokens = 0, cycles = 0, replayed = 0, turns_equal = 0;
  double tokens_per_cycle() const { return static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(cycles, 1)); }
  double replayed_tokens_per_cycle() const { return static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(replayed, 1)); }
};

// By mode, over the turns whose text is the replay's.
std::map<std::string, Sums> sums_of(const std::string& unit, bool calibrated) {
  std::map<std::string, Sums> out;
  auto engine = Engine::open({.model = kSource + "/models/demo", .unit = unit, .cache = false});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  if (!engine.ok()) return out;
  const std::vector<Case> all = cases();
  std::string text;
  for (const Case& c : all) text += to_json(c.prompt) + "\n";
  const auto prompts = read_bench_prompts(*engine->impl(), text, "prompts");
  DraftBenchOptions o;
  o.modes = {"chain:9", "tree:16", "tree:24", "tree:48"};
  o.temperatures = {0};
  o.sources = "dspark";
  o.rounds = 0;
  o.calibrated = calibrated;
  o.max_tokens = 64;
  const auto bench = bench_drafts(*engine->impl(), *prompts, o);
  EXPECT_TRUE(bench.ok()) << (bench.ok() ? "" : bench.status().message());
  if (!bench.ok()) return out;
  const std::pair<const char*, const char*> names[] = {{"chain:9", "chain9"}, {"tree:16", "tree16"}, {"tree:24", "tree24"}, {"tree:48", "tree48"}};
  for (const auto& [mode, name] : names) {
    const DraftCell& cell = bench->tables[0].cells.at(mode).at("all");
    Sums& s = out[mode];
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<int32_t> ids;
      for (const Value& id : all[i].prompt.find("ids")->as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
      std::vector<int32_t> found = bench->tables[0].answers[i];
      if (ids.size() == found.size() + 1) found.push_back(ids.back());  // the end token is not a part of an answer
      if (found != ids) continue;
      const int64_t replayed = all[i].replay.find(name)->as_int();
      ++s.turns;
      s.tokens += static_cast<int64_t>(ids.size()) - 1;
      s.cycles += cell.cycles[i];
      s.replayed += replayed;
      s.turns_equal += cell.cycles[i] == replayed;
    }
    std::printf("%-9s %-12s %-8s %lld turns of equal text, %lld tokens behind the first: %.3f tokens a cycle, the replay %.3f; %lld turns with as many cycles\n", unit.c_str(), calibrated ? "calibrated" : "uncalibrated", mode,
                static_cast<long long>(s.turns), static_cast<long long>(s.tokens), s.tokens_per_cycle(), s.replayed_tokens_per_cycle(), static_cast<long long>(s.turns_equal));
  }
  return out;
}

TEST(Replay, on_the_reference_unit_chains_and_trees_are_the_replays) {
  for (const auto& [mode, s] : sums_of("reference", false)) {
    EXPECT_GE(s.turns, static_cast<int64_t>(kPrompts)) << "every text is the replay's";
    EXPECT_EQ(s.turns_equal, s.turns) << mode;
  }
}

TEST(Replay, on_the_cpu_unit_tokens_a_cycle_are_near) {
  for (const bool calibrated : {false, true})
    for (const auto& [mode, s] : sums_of("cpu", calibrated)) {
      EXPECT_GE(s.turns, static_cast<int64_t>(kPrompts / 2));
      // Six short turns have some thirty cycles, so one more or less is much.
      EXPECT_NEAR(s.tokens_per_cycle() / s.replayed_tokens_per_cycle(), 1.0, kPrompts == 40 ? 0.03 : 0.15) << mode;
    }
}

}  // namespace
}  // namespace espalier
