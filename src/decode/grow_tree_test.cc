#include "decode/grow_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace espalier {
namespace {

using Path = std::vector<int32_t>;

// Proposes what a table says of each path, and writes down what it is asked and told.
class TableSource final : public DraftSource {
 public:
  std::map<Path, std::vector<Proposal>> table;
  std::map<Path, int> asked;
  std::vector<std::tuple<Path, int32_t, float, bool>> told;

  std::string_view name() const override { return "table"; }
  void begin(std::span<const int32_t>) override {}
  void propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) override {
    const Path path(place.path.begin(), place.path.end());
    ++asked[path];
    const std::vector<Proposal>& all = table[path];
    out.insert(out.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(limit, all.size())));
  }
  void learn(const DraftPlace& place, int32_t token, float probability, bool accepted) override {
    told.emplace_back(Path(place.path.begin(), place.path.end()), token, probability, accepted);
  }
};

// Random children, best first, for every path of up to `depth` tokens.
void fill(TableSource& source, const Path& path, int32_t depth, int32_t vocabulary, std::mt19937& random) {
  std::vector<Proposal> children;
  for (int32_t t = 0; t < vocabulary; ++t)
    if (random() % 3 != 0) children.push_back({t, static_cast<float>(random() % 65535 + 1) / 65536.0f});
  std::sort(children.begin(), children.end(), [](const Proposal& a, const Proposal& b) { return a.probability > b.probability; });
  for (const Proposal& c : children) {
    Path next = path;
    next.push_back(c.token);
    if (depth > 1) fill(source, next, depth - 1, vocabulary, random);
  }
  source.table[path] = std::move(children);
}

struct Product {
  float reach;
  size_t sequence;
  Path path;
  auto operator<=>(const Product&) const = default;
};

// All paths with their products, without a heap.
void all_products(const std::vector<TableSource*>& sources, size_t sequence, const Path& path, float above, int32_t depth, std::vector<Product>& out) {
  if (depth == 0) return;
  std::map<int32_t, float> miss;
  for (TableSource* s : sources) {
    const auto at = s->table.find(path);
    if (at == s->table.end()) continue;
    for (const Proposal& p : at->second) {
      const auto [m, first] = miss.try_emplace(p.token, p.probability);
      if (!first) m->second = 1 - (1 - m->second) * (1 - p.probability);
    }
  }
  for (const auto& [token, p] : miss) {
    Path next = path;
    next.push_back(token);
    out.push_back({above * p, sequence, next});
    all_products(sources, sequence, next, above * p, depth - 1, out);
  }
}

Path path_of(const DraftTree& tree, size_t node) {
  Path path;
  for (int32_t at = static_cast<int32_t>(node); at != kRoot; at = tree.nodes[static_cast<size_t>(at)].parent)
    path.insert(path.begin(), tree.nodes[static_cast<size_t>(at)].token);
  return path;
}

struct Forest {
  std::vector<std::vector<TableSource>> sources;  // by sequence
  std::vector<DraftSequence> inputs() {
    std::vector<DraftSequence> in(sources.size());
    for (size_t s = 0; s < sources.size(); ++s)
      for (TableSource& source : sources[s]) in[s].sources.push_back(&source);
    return in;
  }
};

Forest random_forest(std::mt19937& random, size_t sequences, size_t sources) {
  Forest forest;
  forest.sources.resize(sequences);
  for (auto& of : forest.sources) {
    of.resize(sources);
    for (TableSource& s : of) fill(s, {}, 3, 4, random);
  }
  return forest;
}

TEST(GrowTree, takes_the_largest_products_of_all_sequences_in_order) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    Forest forest = random_forest(random, 1 + round % 3, 1 + round % 2);
    std::vector<Product> all;
    for (size_t s = 0; s < forest.sources.size(); ++s) {
      std::vector<TableSource*> of;
      for (TableSource& source : forest.sources[s]) of.push_back(&source);
      all_products(of, s, {}, 1.0f, 3, all);
    }
    std::sort(all.begin(), all.end(), std::greater<>());
    TreeGrower grower(forest.inputs(), {kDraftNodesMax, 3, kDraftChildrenMax});
    const size_t nodes = grower.grow(kDraftNodesMax);
    ASSERT_EQ(nodes, std::min<size_t>(all.size(), kDraftNodesMax));
    std::set<std::pair<size_t, Path>> wanted, got;
    for (size_t i = 0; i < nodes; ++i) {
      EXPECT_EQ(grower.reach()[i], all[i].reach) << i;
      wanted.insert({all[i].sequence, all[i].path});
    }
    for (size_t s = 0; s < grower.sequences(); ++s)
      for (size_t n = 0; n < grower.tree(s).nodes.size(); ++n) got.insert({s, path_of(grower.tree(s), n)});
    // Equal products at the border may stand for each other.
    if (nodes == all.size() || all[nodes - 1].reach != all[nodes].reach) {
      EXPECT_EQ(got, wanted);
    }
  }
}

TEST(GrowTree, every_prefix_is_well_formed_and_a_cut_keeps_it) {
  std::mt19937 random(2);
  Forest forest = random_forest(random, 3, 2);
  TreeGrower whole(forest.inputs(), {});
  const size_t nodes = whole.grow(kDraftNodesMax);
  ASSERT_EQ(nodes, static_cast<size_t>(kDraftNodesMax));
  for (size_t n = 0; n <= nodes; ++n) {
    TreeGrower grown(forest.inputs(), {}), cut(forest.inputs(), {});
    EXPECT_EQ(grown.grow(n), n);
    cut.grow(nodes);
    cut.cut(n);
    EXPECT_EQ(cut.next(), 0.0f);
    EXPECT_FALSE(cut.take());
    size_t sum = 0;
    for (size_t s = 0; s < 3; ++s) {
      EXPECT_TRUE(is_well_formed(grown.tree(s)));
      ASSERT_EQ(grown.tree(s).nodes.size(), cut.tree(s).nodes.size());
      sum += grown.tree(s).nodes.size();
      for (size_t i = 0; i < grown.tree(s).nodes.size(); ++i) {
        const DraftNode &a = grown.tree(s).nodes[i], &b = cut.tree(s).nodes[i];
        EXPECT_TRUE(a.token == b.token && a.parent == b.parent && a.depth == b.depth && a.reach == b.reach && a.sources == b.sources);
      }
    }
    EXPECT_EQ(sum, n);
    for (size_t i = 1; i < n; ++i) EXPECT_LE(grown.reach()[i], grown.reach()[i - 1]);
  }
}

TEST(GrowTree, a_place_is_asked_once_and_only_when_something_below_it_may_be_next) {
  std::mt19937 random(3);
  Forest forest = random_forest(random, 1, 1);
  TableSource& source = forest.sources[0][0];
  TreeGrower grower(forest.inputs(), {kDraftNodesMax, 3, kDraftChildrenMax});
  EXPECT_TRUE(source.asked.empty());
  for (int n = 1; n <= 12; ++n) {
    ASSERT_TRUE(grower.take());
    EXPECT_LE(source.asked.size(), static_cast<size_t>(n)) << "the root and the nodes before the newest";
  }
  grower.grow(kDraftNodesMax);
  for (const auto& [path, times] : source.asked) {
    EXPECT_EQ(times, 1);
    EXPECT_LT(path.size(), 3u);
  }
}

TEST(GrowTree, silly_limits_are_clamped) {
  // One source that never runs dry: a chain of sure tokens with a doubtful one beside each.
  class Endless final : public DraftSource {
   public:
    std::string_view name() const override { return "endless"; }
    void begin(std::span<const int32_t>) override {}
    void propose(const DraftPlace&, size_t limit, std::vector<Proposal>& out) override {
      if (limit > 0) out.push_back({1, 1.0f});
      if (limit > 1) out.push_back({2, 0.5f});
    }
    void learn(const DraftPlace&, int32_t, float, bool) override {}
  } source;
  for (const int64_t n : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    EXPECT_EQ(TreeGrower({{{&source}}}, {n, 9, 9}).grow(99), 0u);
    EXPECT_EQ(TreeGrower({{{&source}}}, {9, n, 9}).grow(99), 0u);
    EXPECT_EQ(TreeGrower({{{&source}, n}}, {9, 9, 9}).grow(99), 0u);
    EXPECT_EQ(TreeGrower({{{&source}}}, {9, 9, n}).grow(99), 9u) << "children: at least one";
  }
  for (const int64_t n : {int64_t{48}, int64_t{1000000000}, INT64_MAX}) {
    TreeGrower grower({{{&source}, n}}, {n, n, n});
    EXPECT_EQ(grower.grow(1000), static_cast<size_t>(std::min<int64_t>(n, kDraftNodesMax)));
    EXPECT_LE(grower.tree(0).nodes.back().depth, std::min<int64_t>(n, kDraftDepthMax));
  }
  TreeGrower chain({{{&source}}}, {1000, 48, 1});
  EXPECT_EQ(chain.grow(1000), 48u);
  for (size_t i = 0; i < 48; ++i) EXPECT_EQ(chain.tree(0).nodes[i].depth, static_cast<int32_t>(i) + 1);
  EXPECT_EQ(TreeGrower({}, {}).grow(10), 0u);
  EXPECT_EQ(TreeGrower({{}}, {}).grow(10), 0u);
}

TEST(GrowTree, damaged_proposals_are_left_out) {
  TableSource source;
  source.table[{}] = {{3, 0.5f}, {3, 0.9f}, {-1, 0.9f}, {4, std::nanf("")}, {5, -1.0f}, {6, 0.0f}, {7, 7.0f}, {8, 1e-30f}};
  source.table[{8}] = {{1, 1e-30f}};  // the product is no number above 0
  TreeGrower grower({{{&source}}}, {});
  EXPECT_EQ(grower.grow(kDraftNodesMax), 3u);
  ASSERT_TRUE(is_well_formed(grower.tree(0)));
  EXPECT_EQ(grower.tree(0).nodes[0].token, 7);
  EXPECT_EQ(grower.tree(0).nodes[0].reach, 1.0f);
  EXPECT_EQ(grower.tree(0).nodes[1].reach, 0.5f) << "the first word of a source counts";
}

TEST(GrowTree, equal_products_keep_one_order) {
  TableSource a, b;
  for (TableSource* s : {&a, &b}) {
    s->table[{}] = {{2, 0.5f}, {1, 0.5f}};
    s->table[{1}] = {{4, 1.0f}};
    s->table[{2}] = {{4, 1.0f}};
  }
  TreeGrower grower({{{&a}}, {{&b}}}, {});
  grower.grow(kDraftNodesMax);
  for (size_t s = 0; s < 2; ++s) {
    std::vector<std::pair<int32_t, int32_t>> order;
    for (const DraftNode& n : grower.tree(s).nodes) order.emplace_back(n.parent, n.token);
    EXPECT_EQ(order, (std::vector<std::pair<int32_t, int32_t>>{{-1, 1}, {-1, 2}, {0, 4}, {1, 4}}));
  }
}

TEST(GrowTree, sources_learn_what_became_of_every_proposal_at_a_place_that_was_reached) {
  TableSource one, two;
  one.table[{}] = {{1, 0.75f}, {2, 0.125f}};
  two.table[{}] = {{1, 0.5f}};
  one.table[{1}] = {{3, 0.5f}};
  one.table[{2}] = {{4, 0.5f}};
  two.table[{1}] = {{5, 0.25f}};
  TreeGrower grower({{{&one, &two}}}, {});
  EXPECT_EQ(grower.next(), 0.875f) << "1 - 0.25 * 0.5";
  grower.grow(kDraftNodesMax);
  EXPECT_EQ(grower.tree(0).nodes[0].sources, 3u);
  grower.learn(0, {{0}, {1, 5}});
  using Told = std::vector<std::tuple<Path, int32_t, float, bool>>;
  EXPECT_EQ(one.told, (Told{{{}, 1, 0.75f, true}, {{}, 2, 0.125f, false}, {{1}, 3, 0.5f, false}}));
  EXPECT_EQ(two.told, (Told{{{}, 1, 0.5f, true}, {{1}, 5, 0.25f, true}}));
  one.told.clear();
  grower.learn(0, {{}, {}});
  EXPECT_TRUE(one.told.empty()) << "the text was complete";
}

}  // namespace
}  // namespace espalier
