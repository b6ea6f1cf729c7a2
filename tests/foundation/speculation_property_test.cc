// The central promise of speculation: whatever was drafted, the text is that of plain decoding, and so is the state, bit for
// bit. All pairs of the factors here; with ESPALIER_FULL_PRODUCT (label slow) all combinations of them, each with eight widths.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "speculation_drafts.h"

namespace espalier::test {
namespace {

constexpr size_t kAnswerMax = 24, kWidthMax = 64;

std::vector<std::string> model_names() { return {"lfm2-f32", "llama-bf16", "qwen3-bf16", "lfm2-l4-bias"}; }

// Models and plain texts, made once. Kernels and threads change no bit, so one plain text serves all units of a kind.
class World {
 public:
  struct Kit {
    std::unique_ptr<Unit> unit;
    std::unique_ptr<Model> model;
  };
  Model& model(const std::string& variant, uint32_t threads, const std::string& name) {
    auto& kit = kits_[variant + "/" + std::to_string(threads) + "/" + name];
    if (!kit.model) {
      auto& tiny = tiny_[name];
      if (!tiny.checkpoint) tiny = name == "demo" ? load_model(std::string(ESPALIER_SOURCE_DIR) + "/models/demo") : load_tiny(name);
      kit.unit = open_variant(variant, threads);
      kit.model = std::move(kit.unit->compile(tiny.plan.program, tiny.weights)).value();
    }
    return *kit.model;
  }
  const PlainText& plain(const std::string& variant, const std::string& name, size_t rules) {
    const std::string kind = variant == "reference" ? variant : variant.ends_with("-i8") ? "i8" : "f16";
    auto& text = plain_[kind + "/" + name + "/" + std::to_string(rules)];
    if (text.text.empty()) {
      Model& m = model(variant, 1, name);
      text = decode_plainly(m, prompt(rules, m.program().vocabulary), draw_rules()[rules].rules, kAnswerMax + kWidthMax + 2);
    }
    return text;
  }
  // Lengths on both sides of a page's border of 128 positions.
  static std::vector<int32_t> prompt(size_t rules, int32_t vocabulary) {
    constexpr std::array<size_t, 6> kLengths = {1, 17, 120, 40, 9, 33};
    return random_tokens(100 + rules, kLengths[rules % kLengths.size()], vocabulary);
  }

 private:
  std::map<std::string, TinyModel> tiny_;
  std::map<std::string, Kit> kits_;
  std::map<std::string, PlainText> plain_;
};
World& world() {
  static World w;
  return w;
}

struct Case {
  std::string variant, model;
  uint32_t threads = 1;
  size_t rules = 0;
  DraftShape shape;
};

std::string describe(const Case& c) {
  return c.model + " on " + c.variant + ", " + std::to_string(c.threads) + " threads, " + draw_rules()[c.rules].name + ", " +
         (c.shape.chain ? "chain" : "tree") + " of " + std::to_string(c.shape.width) + ", " + draft_kind_name(c.shape.kind);
}

std::vector<float> logprobs_of(const StepReport& report) {
  std::vector<float> out;
  for (const DrawnToken& t : report.drawn) {
    out.push_back(t.logprobs.logprob);
    for (const TopEntry& e : t.logprobs.top) out.push_back(e.logit);
  }
  return out;
}

struct Decoded {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<std::byte> state;
  bool operator==(const Decoded&) const = default;
};

// `answer` tokens, the last of which ends the text, wherever in a block it comes.
Decoded decode(Model& model, const PlainText& plain, const DrawRules& rules, int32_t answer, bool says_limit, ScriptedDrafting* drafting) {
  Decoded out;
  Decoder decoder(model, nullptr, drafting);
  const std::unique_ptr<State> state = std::move(model.make_state()).value();
  TextLimits limits;
  if (says_limit) limits.tokens_max = answer;
  limits.complete = [&](const DrawnToken&) { return --answer == 0; };
  const std::vector<int32_t> prompt(plain.text.begin(), plain.text.begin() + static_cast<ptrdiff_t>(plain.prompt));
  const SequenceId id = *decoder.open(state.get(), prompt, static_cast<int32_t>(prompt.size()), rules.rules, rules.logprobs, std::move(limits));
  if (drafting != nullptr) drafting->follow(id, plain.text);
  while (answer > 0) {
    auto report = decoder.step(50);
    if (!report.ok()) {
      ADD_FAILURE() << report.status().message();
      return out;
    }
    EXPECT_EQ(report->drafts_failure, "");
    for (const DrawnToken& t : report->drawn) out.ids.push_back(t.id);
    const std::vector<float> logprobs = logprobs_of(*report);
    out.logprobs.insert(out.logprobs.end(), logprobs.begin(), logprobs.end());
  }
  out.state = serialize(state->export_neutral());
  return out;
}

struct Tally {
  int64_t drafted = 0, accepted = 0;
  int longest = 0, cases = 0;
};

void check(const Case& c, uint64_t seed, Tally& tally) {
  Random random(seed);
  const int32_t answer = 1 + random.below(static_cast<int32_t>(kAnswerMax));
  const DrawRules rules = draw_rules()[c.rules];
  Model& model = world().model(c.variant, c.threads, c.model);
  const PlainText& plain = world().plain(c.variant, c.model, c.rules);
  ScriptedDrafting drafting(model.program().vocabulary, seed, [&](int cycle) {
    DraftShape shape = c.shape;
    shape.accept = static_cast<int32_t>((static_cast<uint64_t>(cycle) * 7 + seed) % static_cast<uint64_t>(shape.width + 1));
    return shape;
  });
  const Decoded got = decode(model, plain, rules, answer, random.below(2) == 0, &drafting);
  const auto first = plain.text.begin() + static_cast<ptrdiff_t>(plain.prompt);
  EXPECT_EQ(got.ids, std::vector<int32_t>(first, first + answer)) << describe(c);
  EXPECT_EQ(got.state, plain.state_bytes(static_cast<size_t>(answer) - 1)) << describe(c);
  if (rules.logprobs >= 0) {
    EXPECT_EQ(got.logprobs, decode(model, plain, rules, answer, true, nullptr).logprobs) << describe(c);
  }
  if (c.shape.kind == DraftKind::wrong) {
    EXPECT_EQ(drafting.accepted, 0) << describe(c);
  }
  tally.drafted += drafting.drafted;
  tally.accepted += drafting.accepted;
  tally.longest = std::max(tally.longest, drafting.longest);
  ++tally.cases;
}

// The factors' sizes, in the order of `case_of`.
std::vector<int32_t> factor_sizes() {
  return {static_cast<int32_t>(unit_variants().size()), 3, static_cast<int32_t>(model_names().size()), static_cast<int32_t>(draw_rules().size()), 2,
          static_cast<int32_t>(kWidthMax), kDraftKinds};
}
Case case_of(const std::vector<int32_t>& at) {
  Case c;
  c.variant = unit_variants()[static_cast<size_t>(at[0])];
  c.threads = static_cast<uint32_t>(at[1] + 1);
  c.model = model_names()[static_cast<size_t>(at[2])];
  c.rules = static_cast<size_t>(at[3]);
  c.shape.chain = at[4] == 0;
  c.shape.width = at[5] + 1;
  c.shape.kind = static_cast<DraftKind>(at[6]);
  return c;
}

// Rows in which every pair of levels of every two factors occurs: each row is the best of a few that begin with a missing pair.
std::vector<std::vector<int32_t>> all_pairs(const std::vector<int32_t>& sizes, uint64_t seed) {
  Random random(seed);
  const size_t factors = sizes.size();
  struct Pair {
    size_t f, g;
    int32_t x, y;
  };
  std::map<std::array<int32_t, 4>, bool> missing;
  for (size_t f = 0; f < factors; ++f)
    for (size_t g = f + 1; g < factors; ++g)
      for (int32_t x = 0; x < sizes[f]; ++x)
        for (int32_t y = 0; y < sizes[g]; ++y) missing[{static_cast<int32_t>(f), static_cast<int32_t>(g), x, y}] = true;
  const auto pairs_of = [&](const std::vector<int32_t>& row) {
    std::vector<std::array<int32_t, 4>> out;
    for (size_t f = 0; f < factors; ++f)
      for (size_t g = f + 1; g < factors; ++g) {
        const std::array<int32_t, 4> pair = {static_cast<int32_t>(f), static_cast<int32_t>(g), row[f], row[g]};
        if (missing.count(pair) > 0) out.push_back(pair);
      }
    return out;
  };
  std::vector<std::vector<int32_t>> rows;
  while (!missing.empty()) {
    const std::array<int32_t, 4> pair = missing.begin()->first;
    std::vector<int32_t> best;
    size_t most = 0;
    for (int tries = 0; tries < 20; ++tries) {
      std::vector<int32_t> row(factors);
      for (size_t f = 0; f < factors; ++f) row[f] = random.below(sizes[f]);
      row[static_cast<size_t>(pair[0])] = pair[2];
      row[static_cast<size_t>(pair[1])] = pair[3];
      const size_t covered = pairs_of(row).size();
      if (covered <= most) continue;
      most = covered;
      best = row;
    }
    // One thread where no pair is lost by it: waiting for each other is what costs on a busy machine.
    std::vector<int32_t> calmer = best;
    calmer[1] = 0;
    if (pairs_of(calmer).size() == most) best = calmer;
    for (const auto& covered : pairs_of(best)) missing.erase(covered);
    rows.push_back(best);
  }
  return rows;
}

TEST(SpeculationProperty, all_pairs_of_units_models_rules_and_drafts_give_plain_texts_and_states) {
  Tally tally;
  const auto rows = all_pairs(factor_sizes(), 1);
  for (size_t i = 0; i < rows.size() && !HasFailure(); ++i) check(case_of(rows[i]), i, tally);
  std::printf("%d cases: %lld tokens drafted, %lld accepted, %d at most in a row\n", tally.cases, static_cast<long long>(tally.drafted),
              static_cast<long long>(tally.accepted), tally.longest);
  EXPECT_GE(tally.cases, 500);
  EXPECT_GT(tally.accepted, tally.drafted / 20);
  EXPECT_GE(tally.longest, 20);
}

TEST(SpeculationProperty, the_demo_model_gives_plain_texts_and_states_on_every_variant) {
  Tally tally;
  Random random(4);
  for (const std::string& variant : unit_variants()) {
    const bool slow = variant == "reference" || variant.find("portable") != std::string::npos;
    for (int kind = 0; kind < kDraftKinds; kind += slow ? 3 : 1) {
      Case c{variant, "demo"};
      c.threads = 1 + static_cast<uint32_t>(random.below(3));
      c.rules = static_cast<size_t>(random.below(static_cast<int32_t>(draw_rules().size())));
      c.shape = {static_cast<DraftKind>(kind), random.below(2) == 0, 1 + random.below(slow ? 12 : 64), 0};
      check(c, static_cast<uint64_t>(500 + kind), tally);
    }
  }
  EXPECT_GT(tally.accepted, 10);
}

#ifdef ESPALIER_FULL_PRODUCT
// The widths of a combination are eight apart; where they begin goes round, so that each width meets the eighth part of them.
TEST(SpeculationProperty, all_combinations_with_eight_widths_each_give_plain_texts_and_states) {
  Tally tally;
  std::vector<int32_t> sizes = factor_sizes();
  sizes[5] = 8;
  std::vector<int32_t> at(sizes.size(), 0);
  for (uint64_t i = 0; !HasFailure(); ++i) {
    std::vector<int32_t> levels = at;
    levels[5] = at[5] * 8 + (at[0] + at[1] + at[2] + at[3] + at[4] + at[6]) % 8;
    check(case_of(levels), i, tally);
    size_t f = 0;
    while (f < at.size() && ++at[f] == sizes[f]) at[f++] = 0;
    if (f == at.size()) break;
  }
  EXPECT_GE(tally.cases, 3 * 3 * 4 * 6 * 2 * 8 * 7);
}
#endif

// One cycle from one state: `accept` right tokens of a chain or tree of `width`.
void check_cycle(Model& model, const PlainText& plain, const DraftShape& shape, uint64_t seed) {
  const std::unique_ptr<State> state = plain.states[0]->fork();
  ScriptedDrafting drafting(model.program().vocabulary, seed, [&](int) { return shape; });
  Decoder decoder(model, nullptr, &drafting);
  std::vector<int32_t> text(plain.text.begin(), plain.text.begin() + static_cast<ptrdiff_t>(plain.prompt) + 1);
  Sampling rules;
  rules.temperature = 0;
  const SequenceId id = *decoder.open(state.get(), text, static_cast<int32_t>(plain.prompt), rules, -1);
  drafting.follow(id, plain.text);
  auto report = decoder.step(64);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->drafts_failure, "");
  ASSERT_EQ(report->drafted_rows, shape.width);
  ASSERT_EQ(static_cast<int32_t>(report->drawn.size()), shape.accept + 1);
  for (size_t i = 0; i < report->drawn.size(); ++i) ASSERT_EQ(report->drawn[i].id, plain.text[plain.prompt + 1 + i]);
  ASSERT_EQ(serialize(state->export_neutral()), plain.state_bytes(static_cast<size_t>(shape.accept) + 1))
      << shape.width << " drafted, " << shape.accept << " accepted";
}

TEST(SpeculationProperty, every_width_with_every_accept_length_leaves_the_plain_state) {
  const std::string variant = unit_variants().size() > 1 ? unit_variants()[1] : "reference";
  for (const char* name : {"lfm2-f32", "llama-bf16"}) {
    Model& model = world().model(variant, 1, name);
    const PlainText plain = decode_plainly(model, World::prompt(2, model.program().vocabulary), draw_rules()[0].rules, kWidthMax + 2);
    for (int32_t width = 1; width <= static_cast<int32_t>(kWidthMax); ++width)
      for (int32_t accept = 0; accept <= width; ++accept) {
        check_cycle(model, plain, {DraftKind::partly, true, width, accept}, static_cast<uint64_t>(width * 100 + accept));
        check_cycle(model, plain, {DraftKind::partly, false, width, accept}, static_cast<uint64_t>(width * 100 + accept));
        if (HasFatalFailure()) return;
      }
  }
}

}  // namespace
}  // namespace espalier::test
