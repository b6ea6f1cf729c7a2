// The planner against its guarantees, over random forests of several sequences.
#include "units/static/window_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace espalier::static_unit {
namespace {

std::vector<int32_t> path_of(const std::vector<PlanNode>& nodes, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = nodes[static_cast<size_t>(node)].parent) path.insert(path.begin(), node);
  return path;
}

// Replays a plan: what is written after each window, and whether each row finds its ancestors.
void check(const std::vector<PlanNode>& nodes, const std::vector<int32_t>& columns, const PlanLimits& limits, const std::vector<PlannedWindow>& plan) {
  std::vector<int> fresh(nodes.size());
  std::vector<std::vector<int32_t>> written(columns.size());
  std::vector<std::vector<size_t>> bases(columns.size(), {0});
  for (const PlannedWindow& w : plan) {
    ASSERT_LE(static_cast<int32_t>(w.rows.size()), limits.rows);
    ASSERT_LE(static_cast<int32_t>(w.parts.size()), limits.sequences);
    int64_t used = 0;
    for (const PlannedPart& part : w.parts) {
      const size_t s = static_cast<size_t>(part.sequence), base = static_cast<size_t>(part.base);
      ASSERT_LE(base, written[s].size());
      if (!limits.any_base) { ASSERT_TRUE(std::count(bases[s].begin(), bases[s].end(), base)); }
      used += columns[s] + part.base + static_cast<int64_t>(part.placed.size());
      for (size_t r = 0; r < w.rows.size(); ++r) {
        if (nodes[static_cast<size_t>(w.rows[r])].sequence != part.sequence) continue;
        const std::vector<int32_t> path = path_of(nodes, w.rows[r]);
        ASSERT_GT(path.size(), base);
        for (size_t i = 0; i < path.size(); ++i) {
          if (i < base) {
            ASSERT_EQ(path[i], written[s][i]);
          } else {
            ASSERT_TRUE(std::count(w.rows.begin(), w.rows.end(), path[i])) << "an ancestor is missing";
          }
        }
      }
      written[s].resize(base);
      std::erase_if(bases[s], [&](size_t b) { return b > base; });
      for (int32_t r : part.placed) written[s].push_back(w.rows[static_cast<size_t>(r)]);
      if (!part.placed.empty()) {
        bases[s].push_back(written[s].size());
        ASSERT_EQ(path_of(nodes, written[s].back()), written[s]);
        if (limits.aligned) { ASSERT_EQ(part.placed.size() % kBlockRows, 0u); }
      }
    }
    ASSERT_LE(used, limits.columns);
    for (size_t r = 0; r < w.rows.size(); ++r) fresh[static_cast<size_t>(w.rows[r])] += w.fresh[r];
  }
  for (size_t n = 0; n < nodes.size(); ++n) EXPECT_EQ(fresh[n], nodes[n].wanted ? 1 : 0);
}

TEST(WindowPlan, random_forests_keep_every_guarantee) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  for (int round = 0; round < 600; ++round) {
    PlanLimits limits;
    limits.rows = (const int[]){8, 16, 64}[below(3)];
    limits.aligned = limits.block = limits.rows == 64 && below(2) == 0;
    limits.sequences = limits.block ? 1 : 1 + below(4);
    limits.columns = 512;
    limits.any_base = below(2) == 0;
    std::vector<PlanNode> nodes;
    std::vector<int32_t> columns;
    const int sequences = 1 + below(4), bend = below(40);
    for (int s = 0; s < sequences; ++s) {
      columns.push_back(limits.block ? 32 * below(4) : below(150));
      const int old = below(20), total = old + 1 + below(120), first = static_cast<int>(nodes.size());
      for (int i = 0; i < total; ++i) {
        int parent = i - 1;
        if (i > old && below(40) < bend) parent = old - 1 + below(i - old + 1);
        nodes.push_back({s, parent < 0 ? -1 : first + parent, i >= old});
      }
    }
    const auto plan = plan_windows(nodes, columns, limits);
    ASSERT_TRUE(plan.ok());
    check(nodes, columns, limits, *plan);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

TEST(WindowPlan, a_chain_is_written_as_it_is_computed) {
  std::vector<PlanNode> nodes;
  for (int i = 0; i < 150; ++i) nodes.push_back({0, i - 1, true});
  PlanLimits limits;
  limits.columns = 512;
  const std::vector<int32_t> columns = {3};
  const auto plan = plan_windows(nodes, columns, limits);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->size(), 3u);
  EXPECT_EQ((*plan)[1].parts[0].base, 64);
  EXPECT_EQ((*plan)[2].parts[0].base, 128);
  EXPECT_EQ((*plan)[2].parts[0].placed.size(), 22u);
}

TEST(WindowPlan, a_tree_feeds_the_accepted_rows_again_and_writes_them_with_its_root) {
  // Three accepted rows, the root, four drafted nodes.
  const std::vector<PlanNode> nodes = {{0, -1, false}, {0, 0, false}, {0, 1, false}, {0, 2, true}, {0, 3, true}, {0, 3, true}, {0, 4, true}, {0, 5, true}};
  PlanLimits limits;
  limits.columns = 512;
  const std::vector<int32_t> columns = {40};
  const auto plan = plan_windows(nodes, columns, limits);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->size(), 1u);
  EXPECT_EQ((*plan)[0].rows.size(), 8u);
  EXPECT_EQ((*plan)[0].parts[0].placed, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(WindowPlan, a_group_that_fits_no_window_is_refused_with_both_numbers) {
  const std::vector<PlanNode> nodes(9, PlanNode{0, -1, true});
  PlanLimits limits;
  limits.rows = 8;
  limits.columns = 64;
  limits.group = true;
  const std::vector<int32_t> columns = {0};
  const auto plan = plan_windows(nodes, columns, limits);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().message(), "sequence 0 has 9 rows that see each other, and a window holds 8");
}

}  // namespace
}  // namespace espalier::static_unit
