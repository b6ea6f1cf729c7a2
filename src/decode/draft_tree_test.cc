#include "decode/draft_tree.h"

#include <gtest/gtest.h>

#include <string>

#include "decode/speculation_stats.h"

namespace espalier {
namespace {

constexpr int32_t kTokens = 3, kNodes = 6;
constexpr int32_t kOther = 9;  // a token that no tree holds

struct Checked {
  int64_t trees = 0, walks = 0, wrong = 0;
};

// What must be kept, said another way: the node whose path from the root spells the longest beginning of the text.
std::vector<int32_t> path_by_spelling(const DraftTree& tree, const std::string& text) {
  std::vector<std::string> spelled;
  std::vector<int32_t> best;
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const DraftNode& n = tree.nodes[i];
    spelled.push_back((n.parent == kRoot ? "" : spelled[static_cast<size_t>(n.parent)]) + static_cast<char>('a' + n.token));
    if (spelled[i].size() <= best.size() || !text.starts_with(spelled[i])) continue;
    best.clear();
    for (int32_t at = static_cast<int32_t>(i); at != kRoot; at = tree.nodes[static_cast<size_t>(at)].parent) best.insert(best.begin(), at);
  }
  return best;
}

// Every text that the target may want below this tree: it goes on at every place that is reached, ends there, or leaves the
// tree. `text` is what it wants so far, all of it inside the tree.
void check_texts(const DraftTree& tree, const std::string& text, int32_t place, Checked& seen) {
  for (int32_t token = -1; token <= kTokens; ++token) {
    std::string wanted = text;
    if (token >= 0) wanted.push_back(static_cast<char>('a' + (token == kTokens ? kOther : token)));
    int32_t child = kRoot;
    for (size_t i = 0; i < tree.nodes.size(); ++i)
      if (token >= 0 && tree.nodes[i].parent == place && tree.nodes[i].token == token) child = static_cast<int32_t>(i);
    if (child != kRoot) {
      check_texts(tree, wanted, child, seen);
      continue;
    }
    std::vector<int32_t> asked;
    const Acceptance kept = accept(tree, [&](int32_t node) {
      asked.push_back(node);
      return asked.size() <= wanted.size() ? wanted[asked.size() - 1] - 'a' : -1;
    });
    const std::vector<int32_t> path = path_by_spelling(tree, wanted);
    std::string tokens;
    for (const int32_t t : kept.tokens) tokens.push_back(static_cast<char>('a' + t));
    std::vector<int32_t> places = path;
    places.insert(places.begin(), kRoot);
    ++seen.walks;
    if (kept.path != path || tokens != wanted || asked != places) ++seen.wrong;
  }
}

void extend(DraftTree& tree, Checked& seen) {
  ++seen.trees;
  if (!is_well_formed(tree)) ++seen.wrong;
  check_texts(tree, "", kRoot, seen);
  if (tree.nodes.size() == kNodes) return;
  for (int32_t parent = kRoot; parent < static_cast<int32_t>(tree.nodes.size()); ++parent) {
    for (int32_t token = 0; token < kTokens; ++token) {
      bool taken = false;
      for (const DraftNode& n : tree.nodes) taken |= n.parent == parent && n.token == token;
      if (taken) continue;
      const int32_t depth = parent == kRoot ? 1 : tree.nodes[static_cast<size_t>(parent)].depth + 1;
      tree.nodes.push_back({token, parent, depth, 0.5f, 1});
      extend(tree, seen);
      tree.nodes.pop_back();
    }
  }
}

TEST(Acceptance, keeps_the_longest_agreeing_path_of_every_small_tree_and_text) {
  DraftTree tree;
  Checked seen;
  extend(tree, seen);
  // Orders of growing trees over three tokens: 3 * 5 * 7 * 9 * 11 * 13 of six nodes, and so on down to the empty one.
  EXPECT_EQ(seen.trees, 1 + 3 + 15 + 105 + 945 + 10395 + 135135);
  EXPECT_GT(seen.walks, 10 * seen.trees);
  EXPECT_EQ(seen.wrong, 0);
}

TEST(DraftTree, refuses_what_is_not_well_formed) {
  const DraftNode root_child{1, kRoot, 1, 0.5f, 1};
  EXPECT_TRUE(is_well_formed({{}}));
  EXPECT_TRUE(is_well_formed({{root_child, {1, 0, 2, 0.5f, 1}}}));
  EXPECT_FALSE(is_well_formed({{root_child, root_child}})) << "the same child twice";
  EXPECT_FALSE(is_well_formed({{{1, 0, 1, 0.5f, 1}}})) << "its own parent";
  EXPECT_FALSE(is_well_formed({{{1, -2, 1, 0.5f, 1}}})) << "a parent above the root";
  EXPECT_FALSE(is_well_formed({{root_child, {1, 0, 1, 0.5f, 1}}})) << "a wrong depth";
  EXPECT_FALSE(is_well_formed({{{-1, kRoot, 1, 0.5f, 1}}})) << "no token";
}

TEST(SpeculationStats, count_what_was_reached_by_depth_and_by_source) {
  // Below the root 5 (both sources) and 6 (the second); below 5: 7 (the first); below 6: 8, which nobody reaches.
  const DraftTree tree{{{5, kRoot, 1, 0.8f, 3}, {6, kRoot, 1, 0.2f, 2}, {7, 0, 2, 0.4f, 1}, {8, 1, 2, 0.1f, 1}}};
  const std::vector<std::string_view> names = {"one", "two"};
  SpeculationStats stats;
  stats.add(tree, {{0}, {5, 9}}, names);  // 5 is right, then the target wants 9
  stats.add(tree, {{}, {4}}, names);
  stats.add(tree, {{0, 2}, {5, 7}}, names);  // the text ended behind 7
  EXPECT_EQ(stats.cycles, 3);
  EXPECT_EQ(stats.rows, 15);
  EXPECT_EQ(stats.tokens, 5);
  EXPECT_EQ(stats.accepted, 3);
  ASSERT_EQ(stats.by_depth.size(), 2u);
  EXPECT_EQ(stats.by_depth[0].offered, 3);
  EXPECT_EQ(stats.by_depth[0].accepted, 2);
  EXPECT_EQ(stats.by_depth[1].offered, 2);
  EXPECT_EQ(stats.by_depth[1].accepted, 1);
  EXPECT_EQ(stats.survival(), (std::vector<double>{2.0 / 3, 1.0 / 3}));
  ASSERT_EQ(stats.by_source.size(), 2u);
  EXPECT_EQ(stats.by_source[0].name, "one");
  EXPECT_EQ(stats.by_source[0].drafted, 9);
  EXPECT_EQ(stats.by_source[0].reached.offered, 5);
  EXPECT_EQ(stats.by_source[0].reached.accepted, 3);
  EXPECT_EQ(stats.by_source[1].reached.offered, 6);
  EXPECT_EQ(stats.by_source[1].reached.accepted, 2);
  EXPECT_EQ(stats.by_source[1].reliability.bins[2].count, 3) << "0.2";
  EXPECT_EQ(stats.by_source[0].reliability.bins[5].count, 2) << "0.4 of 0.8";

  SpeculationStats other;
  const std::vector<std::string_view> two = {"two"};
  other.add({{{5, kRoot, 1, 0.8f, 1}}}, {{0}, {5, 1}}, two);
  stats.merge(other);
  EXPECT_EQ(stats.cycles, 4);
  EXPECT_EQ(stats.by_source[1].reached.offered, 7);
  EXPECT_DOUBLE_EQ(stats.tokens_per_cycle(), 7.0 / 4);
}

}  // namespace
}  // namespace espalier
