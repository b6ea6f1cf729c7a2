// The decoder's step with trees: small trees one by one, several sequences, taps, limits, and calls that fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "speculation_drafts.h"

namespace espalier::test {
namespace {

Sampling greedy() {
  Sampling rules;
  rules.temperature = 0;
  return rules;
}

struct Bench {
  explicit Bench(const std::string& name, const std::string& variant = "") {
    tiny = load_tiny(name);
    unit = open_variant(variant.empty() ? unit_variants().back() : variant, 1);
    model = std::move(unit->compile(tiny.plan.program, tiny.weights)).value();
  }
  std::unique_ptr<State> fresh() { return std::move(model->make_state()).value(); }
  int32_t vocabulary() const { return tiny.plan.program.vocabulary; }

  TinyModel tiny;
  std::unique_ptr<Unit> unit;
  std::unique_ptr<Model> model;
};

// One given tree.
class OneTree : public Drafting {
 public:
  explicit OneTree(DraftTree tree) : tree_(std::move(tree)) {}
  std::span<const std::string> taps() const override { return {}; }
  bool follows(SequenceId) const override { return true; }
  bool reads_taps(SequenceId) const override { return false; }
  void draft(std::span<const DraftAsk>, int32_t, std::span<DraftTree> trees) override { trees[0] = tree_; }
  void settle(SequenceId, const DraftTree& tree, const Acceptance& kept) override {
    verified = tree.nodes.size();
    path = kept.path;
  }
  void keep(std::span<const KeptRows>) override {}
  void abandon() override {}
  void observe(const StepReport&) override {}

  size_t verified = 0;
  std::vector<int32_t> path;

 private:
  DraftTree tree_;
};

// How many right tokens a walk from the root meets.
size_t right_tokens(const DraftTree& tree, std::span<const int32_t> truth) {
  int32_t at = kRoot;
  for (size_t n = 0;; ++n) {
    const auto child = std::find_if(tree.nodes.begin(), tree.nodes.end(), [&](const DraftNode& d) { return d.parent == at && d.token == truth[n]; });
    if (child == tree.nodes.end()) return n;
    at = static_cast<int32_t>(child - tree.nodes.begin());
  }
}

void check_tree(Bench& bench, const PlainText& plain, const DraftTree& tree) {
  const std::span<const int32_t> truth = std::span(plain.text).subspan(plain.prompt + 1);
  const size_t right = is_well_formed(tree) ? right_tokens(tree, truth) : 0;
  const std::unique_ptr<State> state = plain.states[0]->fork();
  OneTree drafting(tree);
  Decoder decoder(*bench.model, nullptr, &drafting);
  ASSERT_TRUE(decoder.open(state.get(), {plain.text.begin(), plain.text.begin() + static_cast<ptrdiff_t>(plain.prompt) + 1},
                           static_cast<int32_t>(plain.prompt), greedy(), -1)
                  .ok());
  const auto report = decoder.step(16);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->drafts_failure, "");
  ASSERT_EQ(drafting.verified, is_well_formed(tree) ? tree.nodes.size() : 0);
  ASSERT_EQ(drafting.path.size(), right);
  ASSERT_EQ(report->drawn.size(), right + 1);
  for (size_t i = 0; i <= right; ++i) ASSERT_EQ(report->drawn[i].id, truth[i]);
  ASSERT_EQ(serialize(state->export_neutral()), plain.state_bytes(right + 1));
}

TEST(SpeculationDecoder, every_tree_of_up_to_four_nodes_is_walked_as_the_text_goes) {
  Bench bench("lfm2-f32");
  const PlainText plain = decode_plainly(*bench.model, random_tokens(5, 11, bench.vocabulary()), greedy(), 8);
  const std::span<const int32_t> truth = std::span(plain.text).subspan(plain.prompt + 1);
  int trees = 0;
  DraftTree tree;
  const std::function<void()> grow = [&] {
    check_tree(bench, plain, tree);
    ++trees;
    if (testing::Test::HasFatalFailure() || tree.nodes.size() == 4) return;
    for (int32_t parent = kRoot; parent < static_cast<int32_t>(tree.nodes.size()); ++parent) {
      const int32_t depth = parent == kRoot ? 1 : tree.nodes[static_cast<size_t>(parent)].depth + 1;
      // The right token of that depth, the one of the next, and another.
      for (const int32_t token : {truth[static_cast<size_t>(depth) - 1], truth[static_cast<size_t>(depth)], (truth[0] + 1) % bench.vocabulary()}) {
        tree.nodes.push_back({token, parent, depth, 0.5f, 1u});
        grow();
        tree.nodes.pop_back();
      }
    }
  };
  grow();
  EXPECT_EQ(trees, 1 + 3 + 3 * 6 + 3 * 6 * 9 + 3 * 6 * 9 * 12);
}

TEST(SpeculationDecoder, L41_L42_drafts_nothing_and_single_tokens_alternate_for_500_tokens) {
  for (const char* name : {"lfm2-f32", "llama-bf16"}) {
    Bench bench(name);
    const PlainText plain = decode_plainly(*bench.model, random_tokens(6, 9, bench.vocabulary()), draw_rules()[2].rules, 570);
    ScriptedDrafting drafting(bench.vocabulary(), 3, [](int cycle) {
      if (cycle % 40 >= 20) return DraftShape{DraftKind::empty, false, 1, 0};  // twenty rounds of nothing
      constexpr DraftKind kKinds[] = {DraftKind::partly, DraftKind::empty, DraftKind::one_token};
      return DraftShape{kKinds[cycle % 3], false, 9, cycle % 5};
    });
    const std::unique_ptr<State> state = bench.fresh();
    Decoder decoder(*bench.model, nullptr, &drafting);
    int left = 500;
    TextLimits limits;
    limits.complete = [&](const DrawnToken&) { return --left == 0; };
    const SequenceId id = *decoder.open(state.get(), {plain.text.begin(), plain.text.begin() + 9}, 9, draw_rules()[2].rules, -1, limits);
    drafting.follow(id, plain.text);
    while (left > 0) ASSERT_TRUE(decoder.step(64).ok());
    const std::span<const int32_t> text = decoder.text(id);
    EXPECT_TRUE(std::equal(text.begin(), text.end(), plain.text.begin())) << name;
    EXPECT_EQ(text.size(), 509u);
    EXPECT_EQ(serialize(state->export_neutral()), plain.state_bytes(499)) << name;
    EXPECT_GT(drafting.accepted, 50);
  }
}

TEST(SpeculationDecoder, L45_four_sequences_with_trees_of_their_own_and_prompts_between_them) {
  const std::vector<DrawRules> rules = draw_rules();
  for (const std::string& name : one_of_each_family()) {
    Bench bench(name);
    std::vector<PlainText> plain;
    for (size_t i = 0; i < rules.size(); ++i)
      plain.push_back(decode_plainly(*bench.model, random_tokens(30 + i, 1 + 23 * i, bench.vocabulary()), rules[i].rules, 110));
    ScriptedDrafting drafting(bench.vocabulary(), 8, [](int cycle) {
      return DraftShape{static_cast<DraftKind>(cycle % kDraftKinds), cycle % 2 == 0, 1 + cycle % 11, cycle % 7};
    });
    Decoder decoder(*bench.model, nullptr, &drafting);
    std::vector<std::unique_ptr<State>> states;
    std::vector<SequenceId> ids;
    std::vector<int> left;
    for (size_t i = 0; i < rules.size(); ++i) left.push_back(12 + 5 * static_cast<int>(i));
    size_t open = 0, complete = 0;
    for (int step = 0; complete < rules.size(); ++step) {
      ASSERT_LT(step, 500);
      if (open < rules.size() && step % 3 == 0) {
        states.push_back(bench.fresh());
        TextLimits limits;
        int& mine = left[open];
        limits.complete = [&mine, &complete](const DrawnToken&) { return --mine == 0 && ++complete > 0; };
        const auto prompt = plain[open].text.begin();
        ids.push_back(*decoder.open(states.back().get(), {prompt, prompt + static_cast<ptrdiff_t>(plain[open].prompt)},
                                    static_cast<int32_t>(plain[open].prompt), rules[open].rules, rules[open].logprobs, limits));
        if (open != 3) drafting.follow(ids.back(), plain[open].text);  // one of them does not draft
        ++open;
      }
      ASSERT_TRUE(decoder.step(13).ok());
    }
    for (size_t i = 0; i < rules.size(); ++i) {
      const std::span<const int32_t> text = decoder.text(ids[i]);
      const size_t drawn = 12 + 5 * i;
      ASSERT_EQ(text.size(), plain[i].prompt + drawn);
      EXPECT_TRUE(std::equal(text.begin(), text.end(), plain[i].text.begin())) << name << ", " << rules[i].name;
      EXPECT_EQ(serialize(states[i]->export_neutral()), plain[i].state_bytes(drawn - 1)) << name << ", " << rules[i].name;
    }
    EXPECT_GT(drafting.accepted, 20);
  }
}

TEST(SpeculationDecoder, the_drafter_gets_the_taps_of_each_kept_row_once_and_in_order) {
  Bench bench("lfm2-f32");
  const PlainText plain = decode_plainly(*bench.model, random_tokens(7, 45, bench.vocabulary()), greedy(), 100);
  const size_t width = static_cast<size_t>(bench.tiny.plan.program.hidden);
  ScriptedDrafting drafting(bench.vocabulary(), 4, [](int cycle) { return DraftShape{DraftKind::partly, cycle % 2 == 0, 12, cycle % 8}; });
  drafting.taps_ = {"layer.1", "layer.0"};
  drafting.feature_width = 2 * width;
  const std::unique_ptr<State> state = bench.fresh();
  Decoder decoder(*bench.model, nullptr, &drafting);
  const SequenceId id = *decoder.open(state.get(), {plain.text.begin(), plain.text.begin() + 45}, 45, greedy(), -1);
  drafting.follow(id, plain.text);
  while (decoder.text(id).size() < 90) ASSERT_TRUE(decoder.step(17).ok());

  const ScriptedDrafting::Context& got = drafting.contexts.at(id);
  EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), state->tokens().begin(), state->tokens().end()));
  // The same rows in one plain call.
  std::vector<Row> rows = chain(got.tokens, 0, kWantTaps);
  const std::unique_ptr<State> again = bench.fresh();
  State* const states[] = {again.get()};
  Outputs out;
  out.taps = {{"layer.1", {}}, {"layer.0", {}}};
  ASSERT_TRUE(bench.model->run({{Role::step, kNone}, rows, states, {}, 0, &out}).ok());
  std::vector<float> expected;
  for (size_t r = 0; r < rows.size(); ++r)
    for (const NamedOutput& tap : out.taps)
      expected.insert(expected.end(), tap.data.begin() + static_cast<ptrdiff_t>(r * width), tap.data.begin() + static_cast<ptrdiff_t>((r + 1) * width));
  EXPECT_TRUE(got.features == expected);
}

TEST(SpeculationDecoder, no_row_is_spent_behind_the_last_token_that_may_be_drawn) {
  Bench bench("lfm2-f32");
  const PlainText plain = decode_plainly(*bench.model, random_tokens(7, 5, bench.vocabulary()), greedy(), 80);
  for (int32_t left = 1; left <= 6; ++left) {
    const std::unique_ptr<State> state = plain.states[0]->fork();
    ScriptedDrafting drafting(bench.vocabulary(), 4, [](int) { return DraftShape{DraftKind::right, true, 20, 0}; });
    Decoder decoder(*bench.model, nullptr, &drafting);
    TextLimits limits;
    limits.tokens_max = left;
    int32_t drawn = 0;
    limits.complete = [&](const DrawnToken&) { return ++drawn == left; };
    const SequenceId id = *decoder.open(state.get(), {plain.text.begin(), plain.text.begin() + 6}, 5, greedy(), -1, limits);
    drafting.follow(id, plain.text);
    while (drawn < left) {
      const auto report = decoder.step(64);
      ASSERT_TRUE(report.ok());
      ASSERT_LE(report->drafted_rows, left - 1);
    }
    EXPECT_EQ(state->length(), 5 + left);
    EXPECT_EQ(serialize(state->export_neutral()), plain.state_bytes(static_cast<size_t>(left)));
    auto idle = decoder.step(64);  // complete: nothing more runs
    ASSERT_TRUE(idle.ok());
    EXPECT_EQ(idle->call.rows, 0);
    EXPECT_EQ(state->length(), 5 + left);
  }
}

TEST(SpeculationDecoder, a_drafted_token_that_breaks_the_call_does_not_end_the_text) {
  Bench bench("lfm2-f32");
  const PlainText plain = decode_plainly(*bench.model, random_tokens(9, 12, bench.vocabulary()), greedy(), 110);
  int32_t never = 0;
  while (std::count(plain.text.begin(), plain.text.end(), never) > 0) ++never;
  Poisoned model(*bench.model, never);
  ScriptedDrafting drafting(bench.vocabulary(), 2, [](int) { return DraftShape{DraftKind::random, false, 60, 0}; });
  const std::unique_ptr<State> state = bench.fresh();
  Decoder decoder(model, nullptr, &drafting);
  const SequenceId id = *decoder.open(state.get(), {plain.text.begin(), plain.text.begin() + 12}, 12, greedy(), -1);
  drafting.follow(id, plain.text);
  int failed = 0;
  while (decoder.text(id).size() < 60) {
    const auto report = decoder.step(64);
    ASSERT_TRUE(report.ok()) << report.status().message();
    if (report->drafts_failure.empty()) continue;
    ++failed;
    EXPECT_EQ(report->drafted_rows, 0);
    EXPECT_NE(report->drafts_failure.find("not finite"), std::string::npos);
  }
  const std::span<const int32_t> text = decoder.text(id);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), plain.text.begin()));
  EXPECT_EQ(serialize(state->export_neutral()), plain.state_bytes(text.size() - 13));
  EXPECT_GT(failed, 3);
  EXPECT_EQ(model.failed, failed);
}

TEST(SpeculationDecoder, a_call_that_fails_by_the_text_itself_is_an_error_and_leaves_the_state) {
  Bench bench("lfm2-f32");
  const PlainText plain = decode_plainly(*bench.model, random_tokens(9, 12, bench.vocabulary()), greedy(), 80);
  const int32_t at = plain.text[14];
  Poisoned model(*bench.model, at);
  ScriptedDrafting drafting(bench.vocabulary(), 2, [](int) { return DraftShape{DraftKind::right, true, 8, 0}; });
  const std::unique_ptr<State> state = bench.fresh();
  Decoder decoder(model, nullptr, &drafting);
  const SequenceId id = *decoder.open(state.get(), {plain.text.begin(), plain.text.begin() + 12}, 12, greedy(), -1);
  drafting.follow(id, plain.text);
  Result<StepReport> report = decoder.step(64);
  for (int i = 0; i < 5 && report.ok(); ++i) report = decoder.step(64);
  ASSERT_FALSE(report.ok());
  const size_t held = static_cast<size_t>(state->length());
  EXPECT_TRUE(std::equal(state->tokens().begin(), state->tokens().end(), plain.text.begin()));
  EXPECT_EQ(serialize(state->export_neutral()), plain.state_bytes(held - 12));
}

}  // namespace
}  // namespace espalier::test
