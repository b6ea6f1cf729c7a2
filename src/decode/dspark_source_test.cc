#include "decode/dspark_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "decode/draft_tree.h"
#include "decode/grow_tree.h"
#include "decode/sampler.h"

namespace espalier {
namespace {

constexpr int32_t kDepths = 3, kHidden = 4, kRank = 6;

std::vector<float> numbers(std::mt19937& random, size_t count, float scale) {
  std::vector<float> values(count);
  for (float& v : values) v = (static_cast<float>(random() % 20001) / 10000.0f - 1.0f) * scale;
  return values;
}

struct Small {
  DraftHead head;
  std::vector<float> logits, hidden;
  DraftBlock block() const { return {kDepths, logits, {}, hidden}; }
};

Small small(MarkovKind kind, int32_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  Small s;
  s.head.kind = kind;
  s.head.vocabulary = vocabulary;
  s.head.hidden = kHidden;
  s.head.rank = kRank;
  const size_t table = static_cast<size_t>(vocabulary) * kRank;
  s.head.w1 = float_table(numbers(random, table, 1), vocabulary, kRank);
  s.head.w2 = float_table(numbers(random, table, 1), vocabulary, kRank);
  s.head.gate_weight = numbers(random, kRank * (kHidden + kRank), 1);
  s.head.gate_bias = numbers(random, kRank, 1);
  s.head.joint_weight = numbers(random, 3 * kRank * (2 * kRank + kHidden), 1);
  s.head.joint_bias = numbers(random, 3 * kRank, 1);
  s.logits = numbers(random, kDepths * static_cast<size_t>(vocabulary), 3);
  s.hidden = numbers(random, kDepths * kHidden, 1);
  return s;
}

Sampling greedy() {
  Sampling s;
  s.temperature = 0;
  return s;
}

Calibration plain_calibration() { return Calibration({{1, 0}}, 0); }

// Base and bias of the children of a path, from the head itself.
std::vector<float> full_logits(const Small& s, int32_t root, const std::vector<int32_t>& path) {
  const MarkovHead head(s.head);
  MarkovHead::Lead lead, above;
  for (size_t d = 0; d <= path.size(); ++d) {
    std::swap(lead, above);
    head.lead(d == 0 ? root : path[d - 1], std::span(s.hidden).subspan(d * kHidden, kHidden), d == 0 ? nullptr : &above, lead);
  }
  std::vector<float> out(static_cast<size_t>(s.head.vocabulary));
  head.bias(lead, out);
  for (size_t v = 0; v < out.size(); ++v) out[v] += s.logits[path.size() * out.size() + v];
  return out;
}

// Every path of the tree with the probability that its last step had.
std::map<std::vector<int32_t>, float> steps_of(const DraftTree& tree) {
  std::map<std::vector<int32_t>, float> steps;
  std::vector<std::vector<int32_t>> paths;
  for (const DraftNode& n : tree.nodes) {
    std::vector<int32_t> path = n.parent == kRoot ? std::vector<int32_t>{} : paths[static_cast<size_t>(n.parent)];
    path.push_back(n.token);
    paths.push_back(path);
    steps[path] = n.reach / (n.parent == kRoot ? 1.0f : tree.nodes[static_cast<size_t>(n.parent)].reach);
  }
  return steps;
}

DraftTree grown(DsparkSource& source, const Small& s, const std::vector<int32_t>& text, int64_t nodes = kDraftNodesMax) {
  source.begin(text);
  source.set_block(s.block());
  TreeGrower grower({{{&source}}}, {nodes, kDraftDepthMax, kDraftChildrenMax});
  grower.grow(kDraftNodesMax);
  return grower.tree(0);
}

// With at most 64 tokens the union is the vocabulary, and the probability is the softmax of base + bias.
TEST(DsparkSource, probabilities_are_conditioned_on_the_real_path_for_every_head) {
  for (const MarkovKind kind : {MarkovKind::vanilla, MarkovKind::gated, MarkovKind::rnn}) {
    const Small s = small(kind, 20, 3);
    MarkovHead head(s.head);
    Calibration calibration = plain_calibration();
    DsparkSource source(head, calibration, greedy());
    const DraftTree tree = grown(source, s, {4, 9});
    ASSERT_EQ(tree.nodes.size(), static_cast<size_t>(kDraftNodesMax));
    size_t deep = 0;
    for (const auto& [path, p] : steps_of(tree)) {
      const std::vector<float> logits = full_logits(s, 9, {path.begin(), path.end() - 1});
      double sum = 0;
      for (const float l : logits) sum += std::exp(static_cast<double>(l));
      EXPECT_NEAR(p, std::exp(static_cast<double>(logits[static_cast<size_t>(path.back())])) / sum, 2e-5);
      deep = std::max(deep, path.size());
    }
    EXPECT_EQ(deep, static_cast<size_t>(kDepths)) << "nothing is proposed below the block";
  }
}

TEST(DsparkSource, without_a_head_or_a_block_it_says_what_the_base_says_or_nothing) {
  Small s = small(MarkovKind::none, 20, 3);
  s.head.rank = 0;
  MarkovHead head(s.head);
  Calibration calibration = plain_calibration();
  DsparkSource source(head, calibration, greedy());
  const DraftTree tree = grown(source, s, {4}, 1);
  ASSERT_EQ(tree.nodes.size(), 1u);
  EXPECT_EQ(tree.nodes[0].token, std::max_element(s.logits.begin(), s.logits.begin() + 20) - s.logits.begin());
  source.begin(std::vector<int32_t>{4});
  EXPECT_EQ(TreeGrower({{{&source}}}, {}).grow(9), 0u) << "a cycle without a block";
  source.set_block({});
  EXPECT_EQ(TreeGrower({{{&source}}}, {}).grow(9), 0u) << "a block without depths";
  source.begin(std::vector<int32_t>{77});
  source.set_block(s.block());
  EXPECT_EQ(TreeGrower({{{&source}}}, {}).grow(9), 0u) << "a root outside of the vocabulary";
}

// 600 tokens: 64 by base logit and the parent's 32 by bias are scored, the others weigh in at their base logits.
TEST(DsparkSource, the_union_holds_the_best_of_base_and_bias_and_the_tail_its_base_logits) {
  const Small s = small(MarkovKind::vanilla, 600, 8);
  MarkovHead head(s.head);
  Calibration calibration = plain_calibration();
  DsparkSource source(head, calibration, greedy());
  const std::vector<float> full = full_logits(s, 5, {});
  std::vector<float> bias(600);
  for (size_t v = 0; v < 600; ++v) bias[v] = full[v] - s.logits[v];
  const auto best_ids = [](const std::vector<float>& of, size_t count) {
    std::vector<int32_t> ids(of.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return of[static_cast<size_t>(a)] > of[static_cast<size_t>(b)]; });
    ids.resize(count);
    return ids;
  };
  std::vector<char> in(600);
  for (const int32_t id : best_ids({s.logits.begin(), s.logits.begin() + 600}, 64)) in[static_cast<size_t>(id)] = 1;
  for (const int32_t id : best_ids(bias, 32)) in[static_cast<size_t>(id)] = 1;
  double sum = 0;
  std::vector<float> scores(600, -1e9f);
  for (size_t v = 0; v < 600; ++v) {
    sum += std::exp(static_cast<double>(in[v] != 0 ? full[v] : s.logits[v]));
    if (in[v] != 0) scores[v] = full[v];
  }
  source.begin(std::vector<int32_t>{5});
  source.set_block(s.block());
  std::vector<Proposal> out, with_lse;
  source.propose({kRoot, kRoot - 1, {}}, 32, out);
  ASSERT_EQ(out.size(), 32u);
  const std::vector<int32_t> wanted = best_ids(scores, 32);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i].token, wanted[i]);
    EXPECT_NEAR(out[i].probability, std::exp(static_cast<double>(scores[static_cast<size_t>(wanted[i])])) / sum, 2e-6);
  }
  // The same with the unit's log-sum-exp in place of the scan.
  std::vector<float> lse;
  for (int32_t d = 0; d < kDepths; ++d) {
    double row = 0;
    for (int32_t v = 0; v < 600; ++v) row += std::exp(static_cast<double>(s.logits[static_cast<size_t>(d * 600 + v)]));
    lse.push_back(static_cast<float>(std::log(row)));
  }
  source.begin(std::vector<int32_t>{5});
  source.set_block({kDepths, s.logits, lse, s.hidden});
  source.propose({kRoot, kRoot - 1, {}}, 32, with_lse);
  ASSERT_EQ(with_lse.size(), 32u);
  for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(with_lse[i].probability, out[i].probability, 1e-5f);
}

// A drafter that knew the target's logits would guess every draw.
TEST(DsparkSource, while_sampling_the_best_child_is_the_draw_of_the_targets_own_sampler) {
  for (int rules = 0; rules < 4; ++rules) {
    int differs_from_greedy = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const Small s = small(MarkovKind::vanilla, 40, 21);
      MarkovHead head(s.head);
      Calibration calibration = plain_calibration();
      Sampling sampling;
      sampling.temperature = 0.9f;
      sampling.seed = seed;
      if (rules == 1) sampling.top_k = 5;
      if (rules == 2) sampling.top_p = 0.7f;
      if (rules == 3) sampling.min_p = 0.2f;
      DsparkSource source(head, calibration, sampling);
      const std::vector<int32_t> text = {1, 2, 3};
      source.begin(text);
      source.set_block(s.block());
      TreeGrower chain({{{&source}}}, {kDepths, kDepths, 1});
      ASSERT_EQ(chain.grow(kDepths), static_cast<size_t>(kDepths));
      std::vector<int32_t> path;
      Sampler sampler(sampling);
      for (const DraftNode& n : chain.tree(0).nodes) {
        const std::vector<float> logits = full_logits(s, 3, path);
        const int32_t position = static_cast<int32_t>(text.size() + path.size());
        EXPECT_EQ(n.token, sampler.choose(logits, History{}, position));
        differs_from_greedy += n.token != std::max_element(logits.begin(), logits.end()) - logits.begin();
        path.push_back(n.token);
      }
    }
    EXPECT_GT(differs_from_greedy, 20);
  }
}

TEST(DsparkSource, the_depth_marginal_form_gives_every_place_of_a_depth_the_greedy_chains_children) {
  for (const MarkovKind kind : {MarkovKind::vanilla, MarkovKind::rnn}) {
    const Small s = small(kind, 20, 3);
    MarkovHead head(s.head);
    Calibration calibration = plain_calibration();
    DsparkSource conditioned(head, calibration, greedy()), marginal(head, calibration, greedy(), {true});
    const auto steps = steps_of(grown(marginal, s, {4, 9}));
    std::map<std::pair<size_t, int32_t>, float> by_depth;
    for (const auto& [path, p] : steps) {
      const auto [at, first] = by_depth.try_emplace({path.size(), path.back()}, p);
      EXPECT_NEAR(at->second, p, 1e-5f);
    }
    // Along the greedy chain both forms agree.
    const auto real = steps_of(grown(conditioned, s, {4, 9}));
    std::vector<int32_t> path;
    for (int32_t d = 0; d < kDepths; ++d) {
      const std::vector<float> logits = full_logits(s, 9, path);
      path.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      ASSERT_TRUE(steps.contains(path) && real.contains(path));
      EXPECT_NEAR(steps.at(path), real.at(path), 1e-6f);
    }
  }
}

TEST(DsparkSource, a_row_with_a_damaged_logit_ends_the_block_there) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    Small s = small(MarkovKind::vanilla, 20, 3);
    s.logits[20 + 7] = bad;
    MarkovHead head(s.head);
    Calibration calibration = plain_calibration();
    DsparkSource source(head, calibration, greedy());
    const DraftTree tree = grown(source, s, {4, 9});
    EXPECT_EQ(tree.nodes.size(), 20u);
    for (const DraftNode& n : tree.nodes) EXPECT_EQ(n.depth, 1);
  }
}

TEST(DsparkSource, learns_by_depth_what_its_probabilities_are_worth) {
  const Small s = small(MarkovKind::vanilla, 20, 3);
  MarkovHead head(s.head);
  Calibration calibration({{1, 0}, {1, 0}, {1, 0}});
  DsparkSource source(head, calibration, greedy());
  const DraftTree first = grown(source, s, {4, 9}, 1);
  for (int i = 0; i < 40; ++i) {
    source.begin(std::vector<int32_t>{4, 9});
    source.set_block(s.block());
    TreeGrower grower({{{&source}}}, {4, 1, 4});
    grower.grow(4);
    grower.learn(0, {{}, {grower.tree(0).nodes[3].token}});  // never the best one
  }
  const DraftTree later = grown(source, s, {4, 9}, 1);
  EXPECT_LT(later.nodes[0].reach, first.nodes[0].reach * 0.7f);
  EXPECT_EQ(calibration.platts()[1].a, 1.0f);
  EXPECT_EQ(calibration.platts()[1].b, 0.0f);
}

TEST(DsparkSource, the_start_of_its_calibration_covers_nine_depths_and_trusts_probabilities_a_little_less_than_they_say) {
  for (const bool greedy_rules : {true, false}) {
    const Calibration c = DsparkSource::calibration(greedy_rules);
    EXPECT_EQ(c.platts().size(), 9u);
    for (size_t d = 0; d < 9; ++d) {
      EXPECT_LT(c.probability(d, logit_of(0.8f)), 0.8f);
      EXPECT_GT(c.probability(d, logit_of(0.8f)), 0.6f);
    }
  }
}

}  // namespace
}  // namespace espalier
