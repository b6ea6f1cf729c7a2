#include "decode/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "decode/draft_tree.h"

namespace espalier {
namespace {

// Children with the same probabilities at every place, down to `depth`.
class SteadySource final : public DraftSource {
 public:
  SteadySource(std::vector<float> probabilities, size_t depth) : probabilities_(std::move(probabilities)), depth_(depth) {}
  std::string_view name() const override { return "steady"; }
  void begin(std::span<const int32_t>) override {}
  void propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) override {
    if (place.path.size() >= depth_) return;
    for (size_t i = 0; i < std::min(limit, probabilities_.size()); ++i) out.push_back({static_cast<int32_t>(i), probabilities_[i]});
  }
  void learn(const DraftPlace&, int32_t, float, bool) override {}

 private:
  std::vector<float> probabilities_;
  size_t depth_;
};

// A machine with a clock of its own, and a target that agrees with the source as often as `right` says.
struct Simulation {
  std::function<double(int32_t rows)> call_ms;
  double block_ms = 0;
  std::vector<float> says;   // probabilities that the source claims for the children of a place
  std::vector<float> right;  // and that they have
  size_t depth = 9;
  std::mt19937 random{17};
  double clock = 0;
  int64_t tokens = 0;
  int blocks = 0;

  // One cycle; the width that was chosen.
  size_t cycle(Budget& budget) {
    SteadySource source(says, depth);
    const bool block = budget.wants_block();
    std::vector<DraftSequence> sequences(1);
    if (block) sequences[0].sources.push_back(&source);
    TreeGrower grower(std::move(sequences), budget.mode().limits(1));
    const size_t nodes = budget.grow(grower, {1, 1, 100}, block);
    const Acceptance kept = accept(grower.tree(0), [&](int32_t) {
      double u = static_cast<double>(random() % 1000000) / 1e6;
      for (size_t i = 0; i < right.size(); ++i)
        if ((u -= static_cast<double>(right[i])) < 0) return static_cast<int32_t>(i);
      return 999;
    });
    CycleReport report{{1, 1, 100}, static_cast<int32_t>(nodes), static_cast<int32_t>(kept.tokens.size()), block};
    report.block_ms = block ? block_ms : 0;
    report.verify_ms = call_ms(1 + static_cast<int32_t>(nodes));
    report.commit_ms = 0.2;
    report.host_ms = 0.1;
    clock += report.block_ms + report.verify_ms + report.commit_ms + report.host_ms;
    tokens += report.tokens;
    blocks += block ? 1 : 0;
    budget.observe(report);
    return nodes;
  }

  // Tokens a millisecond of every fixed width in the long run.
  std::vector<double> rates() const {
    SteadySource source(says, depth);
    TreeGrower grower({{{&source}}}, {});
    grower.grow(kDraftNodesMax);
    std::vector<double> rates = {1.0 / (call_ms(1) + 0.3 + block_ms)};
    double gained = 1;
    for (size_t n = 1; n <= grower.reach().size(); ++n) {
      gained += static_cast<double>(grower.reach()[n - 1]);
      rates.push_back(gained / (call_ms(1 + static_cast<int32_t>(n)) + 0.3 + block_ms));
    }
    return rates;
  }
  size_t best_width() const {
    const std::vector<double> all = rates();
    return static_cast<size_t>(std::max_element(all.begin(), all.end()) - all.begin());
  }
};

CostCurve curve_of(const std::function<double(int32_t)>& ms) {
  CostCurve curve;
  curve.measured = true;
  curve.bands.push_back({0, {}});
  for (int32_t r = 1; r <= kDraftRowsMax; ++r) curve.bands[0].ms[static_cast<size_t>(r - 1)] = ms(r);
  return curve;
}

double steps_of_8(int32_t rows) { return 20 + 4.0 * ((rows + 7) / 8); }
double knee_then_steps_of_4(int32_t rows) { return std::max(34.0, 2.9 * 4 * ((rows + 3) / 4)); }
double one_step(int32_t rows) { return rows <= 20 ? 30 : 90; }
double steps_of_16(int32_t rows) { return 5 + 15.0 * ((rows + 15) / 16); }

using Machine = double (*)(int32_t);
constexpr Machine kMachines[] = {steps_of_8, knee_then_steps_of_4, one_step, steps_of_16};
const std::vector<std::vector<float>> kTexts = {{0.8f, 0.1f, 0.05f}, {0.5f, 0.2f, 0.1f}, {0.3f, 0.1f}, {0.95f, 0.03f}};

TEST(ChooseWidth, equals_a_search_over_all_widths) {
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    const size_t n = random() % 64;
    std::vector<float> reach(n);
    for (float& r : reach) r = static_cast<float>(random() % 1000) / 1000.0f;
    std::sort(reach.begin(), reach.end(), std::greater<>());
    std::vector<double> ms(n + 1);
    for (double& t : ms) t = static_cast<double>(random() % 1000) / 10;
    const double price = static_cast<double>(random() % 100) / 500;
    const auto value = [&](size_t width) {
      double sum = 0;
      for (size_t i = 0; i < width; ++i) sum += static_cast<double>(reach[i]);
      return sum - price * ms[width];
    };
    const size_t chosen = choose_width(reach, ms, price);
    for (size_t w = 0; w <= n; ++w) {
      if (w < chosen) {
        EXPECT_GT(value(chosen), value(w) - 1e-12);
      } else {
        EXPECT_GE(value(chosen), value(w) - 1e-12);
      }
    }
  }
}

TEST(ChooseWidth, looks_beyond_a_step) {
  // Four nodes are dear, eight cost the same.
  const std::vector<float> reach(8, 0.5f);
  const std::vector<double> ms = {10, 20, 20, 20, 20, 20, 20, 20, 20};
  EXPECT_EQ(choose_width(reach, ms, 0.2), 8u);
  EXPECT_EQ(choose_width(std::span(reach).first(3), std::span(ms).first(4), 0.2), 0u);
  EXPECT_EQ(choose_width({}, std::span(ms).first(1), 0.2), 0u);
}

TEST(Budget, the_best_width_of_a_stepped_curve_is_chosen_after_50_cycles) {
  for (const Machine machine : kMachines) {
    for (const std::vector<float>& text : kTexts) {
      for (const double slower : {1.0, 1.7, 0.6}) {
        for (uint32_t seed = 1; seed <= 5; ++seed) {
          Simulation sim{machine, 3, text, text};
          sim.random.seed(seed);
          // Steps as profiled, while the machine now runs at another pace.
          Budget budget({}, curve_of([&](int32_t r) { return machine(r) / slower; }));
          for (int i = 0; i < 50; ++i) sim.cycle(budget);
          const size_t best = sim.best_width(), chosen = sim.cycle(budget);
          // Two widths may be as good as each other.
          const std::vector<double> rates = sim.rates();
          EXPECT_TRUE(chosen == best || rates[chosen] >= 0.998 * rates[best]) << chosen << " for " << best << ", " << machine(64) << " ms at 64 rows, " << text[0] << ", " << slower << " times slower, seed " << seed;
          EXPECT_NEAR(budget.predicted_ms(1 + static_cast<int32_t>(best), 100), machine(1 + static_cast<int32_t>(best)), 0.02 * machine(64));
        }
      }
    }
  }
}

TEST(Budget, without_a_profile_the_chosen_width_comes_near_the_best) {
  for (const Machine machine : kMachines) {
    for (const std::vector<float>& text : kTexts) {
      for (uint32_t seed = 1; seed <= 6; ++seed) {
        Simulation sim{machine, 3, text, text};
        sim.random.seed(seed);
        CostCurve curve = modelled_curve({machine(1), 0, 1, 32 / machine(32), 0});
        if (seed % 2 == 0) curve.seen = {1, 32};
        Budget budget({}, curve);
        EXPECT_EQ(sim.cycle(budget) == 0, seed % 2 != 0) << "plain at first only where one row's time is not known";
        for (int i = 1; i < 50; ++i) sim.cycle(budget);
        const std::vector<double> rates = sim.rates();
        EXPECT_GE(rates[sim.cycle(budget)], 0.85 * rates[sim.best_width()]) << machine(64) << " ms at 64 rows, " << text[0];
      }
    }
  }
}

TEST(Budget, noise_in_the_clock_costs_little) {
  for (const Machine machine : kMachines) {
    Simulation sim{machine, 3, kTexts[1], kTexts[1]};
    const Simulation quiet = sim;
    std::mt19937 noise(9);
    sim.call_ms = [&](int32_t rows) {
      const double wobble = 0.95 + 0.1 * static_cast<double>(noise() % 1000) / 1000;
      return machine(rows) * wobble * (noise() % 40 == 0 ? 4 : 1);  // and now and then something takes the processor
    };
    Budget budget({}, curve_of(machine));
    const std::vector<double> rates = quiet.rates();
    double sum = 0;
    for (int i = 0; i < 400; ++i) sum += rates[sim.cycle(budget)];
    EXPECT_GE(sum / 400, 0.97 * rates[quiet.best_width()]) << machine(64);
  }
}

// Memory that others use makes narrow calls dearer and wide ones not: wider trees are then free.
TEST(Budget, follows_a_memory_that_becomes_slow_and_fast_again) {
  double memory_ms = 34;
  Simulation sim{[&](int32_t rows) { return std::max(memory_ms, 2.9 * 4 * ((rows + 3) / 4)); }, 3, kTexts[0], kTexts[0]};
  Budget budget({}, curve_of(knee_then_steps_of_4));
  for (int i = 0; i < 60; ++i) sim.cycle(budget);
  EXPECT_EQ(sim.cycle(budget), 11u);
  memory_ms = 68;
  for (int i = 0; i < 60; ++i) sim.cycle(budget);
  EXPECT_EQ(sim.cycle(budget), sim.best_width());
  EXPECT_GE(sim.best_width(), 19u);
  memory_ms = 34;
  for (int i = 0; i < 60; ++i) sim.cycle(budget);
  EXPECT_EQ(sim.cycle(budget), 11u);
}

// The first condition that auto has to meet: it may not lose.
TEST(Budget, a_drafter_that_is_never_right_costs_next_to_nothing) {
  const auto flat = [](int32_t rows) { return 10 + 0.05 * rows; };
  const auto steep = [](int32_t rows) { return 5.0 + 5.0 * rows; };
  for (const std::function<double(int32_t)>& machine : {std::function<double(int32_t)>(flat), std::function<double(int32_t)>(steep)}) {
    for (const double block : {0.05, 0.3, 1.0, 1.5}) {
      for (const bool measured : {true, false}) {
        // What it says is never corrected here, as if its calibration learnt nothing.
        Simulation sim{machine, block * machine(1), {0.8f, 0.1f}, {0, 0}};
        Budget budget({}, measured ? curve_of(machine) : modelled_curve({machine(1), 0, 1, 64 / machine(64), 0}));
        const auto times_plain = [&] { return sim.clock / (static_cast<double>(sim.tokens) * (machine(1) + 0.3)); };
        while (sim.tokens < 512) sim.cycle(budget);
        EXPECT_LE(times_plain(), 1.03) << machine(64) << ' ' << block;
        const int first = sim.blocks;
        while (sim.tokens < 8192) sim.cycle(budget);
        EXPECT_LE(times_plain(), 1.004);
        EXPECT_LE(sim.blocks - first, first + 4) << "less and less often";
        EXPECT_GT(sim.blocks, first) << "and yet now and then";
      }
    }
  }
}

TEST(Budget, a_drafter_that_becomes_right_is_found_again) {
  Simulation sim{steps_of_8, 8, {0.8f, 0.1f}, {0, 0}};
  Budget budget({}, curve_of(steps_of_8));
  while (sim.tokens < 1000) sim.cycle(budget);
  sim.right = sim.says;
  const int64_t tokens = sim.tokens;
  const double clock = sim.clock;
  while (sim.tokens < tokens + 3000) sim.cycle(budget);
  const double rate = static_cast<double>(sim.tokens - tokens) / (sim.clock - clock);
  EXPECT_GE(rate, 0.8 * sim.rates()[sim.best_width()]);
}

TEST(Budget, trees_without_a_block_have_an_account_of_their_own) {
  Budget budget({}, curve_of([](int32_t rows) { return 5.0 + 5.0 * rows; }));
  SteadySource source({0.9f}, 4);
  size_t drafted = 0;
  for (int i = 0; i < 500; ++i) {
    TreeGrower grower({{{&source}}}, budget.mode().limits(1));
    const size_t nodes = budget.grow(grower, {}, false);
    drafted += nodes;
    CycleReport report;
    report.nodes = static_cast<int32_t>(nodes);
    report.verify_ms = 5.0 + 5.0 * static_cast<double>(1 + nodes);
    budget.observe(report);
  }
  EXPECT_LE(drafted, 40u);
  EXPECT_GT(drafted, 0u);
  EXPECT_TRUE(budget.wants_block()) << "what n-grams lost says nothing of the drafter";
}

// A model whose calls are so short that asking costs more than it may.
struct TinyModel {
  double plain_ms = 0.3, ask_ms = 0.03, block_ms = 0.6;
  bool right = false;  // the drafter's tokens
  double clock = 0;
  int64_t tokens = 0;
  int asked = 0, blocks = 0, rested_in_a_row = 0, longest_rest = 0;

  void cycle(Budget& budget) {
    CycleReport report;
    report.verify_ms = plain_ms;
    report.rested = budget.rests();
    rested_in_a_row = report.rested ? rested_in_a_row + 1 : 0;
    longest_rest = std::max(longest_rest, rested_in_a_row);
    if (!report.rested) ask(budget, report);
    clock += report.block_ms + report.grow_ms + report.verify_ms;
    tokens += report.tokens;
    budget.observe(report);
  }
  void ask(Budget& budget, CycleReport& report) {
    SteadySource source({0.9f}, 4);
    report.block = budget.wants_block();
    DraftSequence sequence;
    if (report.block) sequence.sources.push_back(&source);
    TreeGrower grower({sequence}, budget.mode().limits(1));
    report.nodes = static_cast<int32_t>(budget.grow(grower, report.shape, report.block));
    report.grow_ms = ask_ms;
    report.block_ms = report.block ? block_ms : 0;
    report.verify_ms += 0.02 * report.nodes;
    if (right) report.tokens += report.nodes;
    asked += 1;
    blocks += report.block ? 1 : 0;
  }
};

TEST(Budget, where_asking_is_dear_and_comes_to_nothing_it_rests_longer_and_longer) {
  TinyModel model;
  Budget budget({}, curve_of([](int32_t rows) { return 0.28 + 0.02 * rows; }));
  while (model.tokens < 512) model.cycle(budget);
  EXPECT_LE(model.clock, 1.03 * 512 * model.plain_ms);
  EXPECT_GE(model.longest_rest, 7);
  EXPECT_LE(model.longest_rest, 64) << "and yet asks now and then";
  EXPECT_LE(model.blocks, 12);
  EXPECT_LE(model.asked, 120);
  const int asked = model.asked;
  while (model.tokens < 1024) model.cycle(budget);
  EXPECT_GT(model.asked, asked);
}

TEST(Budget, a_rest_ends_for_good_when_asking_pays_again) {
  TinyModel model;
  Budget budget({}, curve_of([](int32_t rows) { return 0.28 + 0.02 * rows; }));
  while (model.tokens < 512) model.cycle(budget);
  model.right = true;
  while (model.tokens < 3000) model.cycle(budget);
  const int64_t tokens = model.tokens;
  const int asked = model.asked;
  while (model.tokens < tokens + 500) model.cycle(budget);
  EXPECT_GE(model.asked - asked, 90) << "every cycle drafts";
  EXPECT_EQ(model.rested_in_a_row, 0);
}

TEST(Budget, large_models_and_fixed_widths_never_rest) {
  TinyModel large{100, 0.05, 20};
  Budget budget({}, curve_of([](int32_t rows) { return 100 + 0.02 * rows; }));
  for (int i = 0; i < 300; ++i) large.cycle(budget);
  EXPECT_EQ(large.asked, 300);
  EXPECT_LE(large.blocks, 60);
  TinyModel fixed;
  Budget tree(*parse_speculation_mode("tree:8"), curve_of(steps_of_8));
  for (int i = 0; i < 100; ++i) fixed.cycle(tree);
  EXPECT_EQ(fixed.blocks, 100);
}

TEST(Budget, fixed_modes_take_their_width_whatever_it_costs) {
  SteadySource source({0.5f, 0.3f}, 40);
  const auto grown = [&](std::string_view mode, int64_t sequences) {
    Budget budget(*parse_speculation_mode(mode), curve_of([](int32_t rows) { return 100.0 * rows; }));
    std::vector<DraftSequence> inputs(static_cast<size_t>(sequences), {{&source}});
    TreeGrower grower(std::move(inputs), budget.mode().limits(sequences));
    return budget.grow(grower, {static_cast<int32_t>(sequences), static_cast<int32_t>(sequences), 0}, true);
  };
  EXPECT_EQ(grown("off", 1), 0u);
  EXPECT_EQ(grown("chain:9", 1), 9u);
  EXPECT_EQ(grown("chain:63", 1), 40u) << "what the source has";
  EXPECT_EQ(grown("tree:1", 1), 0u);
  EXPECT_EQ(grown("tree:24", 1), 23u);
  EXPECT_EQ(grown("tree:64", 1), 63u);
  EXPECT_EQ(grown("tree:8", 3), 21u);
  EXPECT_EQ(grown("tree:64", 4), 60u) << "64 rows with the roots";
  EXPECT_EQ(grown("chain:4", 64), 0u);
  EXPECT_EQ(grown("chain:4", 100), 0u);
  EXPECT_FALSE(Budget(*parse_speculation_mode("off"), curve_of(steps_of_8)).wants_block());
  EXPECT_TRUE(Budget(*parse_speculation_mode("tree:8"), curve_of(steps_of_8)).wants_block());
}

TEST(Budget, the_same_reports_give_the_same_widths) {
  std::vector<size_t> widths[2];
  for (std::vector<size_t>& w : widths) {
    Simulation sim{steps_of_16, 3, kTexts[1], kTexts[1]};
    Budget budget({}, curve_of(steps_of_16));
    for (int i = 0; i < 100; ++i) w.push_back(sim.cycle(budget));
  }
  EXPECT_EQ(widths[0], widths[1]);
}

TEST(Budget, what_no_clock_would_say_changes_nothing_and_breaks_nothing) {
  Budget budget({}, curve_of(steps_of_8));
  const double before = budget.predicted_ms(9, 0);
  for (const double ms : {0.0, -5.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    CycleReport report;
    report.verify_ms = ms;
    budget.observe(report);
  }
  EXPECT_EQ(budget.predicted_ms(9, 0), before);
  EXPECT_TRUE(budget.wants_block());
  EXPECT_TRUE(std::isfinite(budget.speedup()));
  CycleReport wide;
  wide.shape.rows = 4000;
  wide.verify_ms = 900;
  budget.observe(wide);
  EXPECT_EQ(budget.predicted_ms(9, 0), before);
  EXPECT_NEAR(budget.predicted_ms(640, 0), 10 * budget.predicted_ms(64, 0), 1e-9);
}

TEST(SpeculationMode, reads_what_an_option_may_say) {
  EXPECT_EQ(parse_speculation_mode("auto")->text(), "auto");
  EXPECT_EQ(parse_speculation_mode("off")->text(), "off");
  EXPECT_EQ(parse_speculation_mode("chain:9")->text(), "chain:9");
  EXPECT_EQ(parse_speculation_mode("tree:24")->text(), "tree:24");
  EXPECT_TRUE(parse_speculation_mode("tree:64")->notice.empty());
  for (const char* wrong : {"", "on", "auto ", "chain", "chain:", "chain:x", "chain:3x", "tree:0", "chain:0", "chain:-1", "tree:1.5", "tree: 4", "Tree:4",
                            "chain:-99999999999999999999"}) {
    const auto mode = parse_speculation_mode(wrong);
    ASSERT_FALSE(mode.ok()) << wrong;
    EXPECT_EQ(mode.status().field(), "speculate");
  }
  for (const char* much : {"chain:64", "chain:1000000000", "chain:99999999999999999999"}) {
    const auto mode = parse_speculation_mode(much);
    ASSERT_TRUE(mode.ok());
    EXPECT_EQ(mode->text(), "chain:63");
    EXPECT_NE(mode->notice.find("at most 63"), std::string::npos);
  }
  EXPECT_EQ(parse_speculation_mode("tree:65")->text(), "tree:64");
}

// max over j <= i of the min over k >= i of the mean of j ... k: the closed form of the fit.
TEST(Isotonic, equals_the_closed_form) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random() % 12;
    std::vector<double> values(n), weights(n);
    for (size_t i = 0; i < n; ++i) {
      values[i] = static_cast<double>(random() % 100);
      weights[i] = static_cast<double>(1 + random() % 5);
    }
    const std::vector<double> fit = isotonic(values, weights);
    for (size_t i = 0; i < n; ++i) {
      double most = -1e9;
      for (size_t j = 0; j <= i; ++j) {
        double least = 1e9, sum = 0, weight = 0;
        for (size_t k = j; k < n; ++k) {
          sum += values[k] * weights[k];
          weight += weights[k];
          if (k >= i) least = std::min(least, sum / weight);
        }
        most = std::max(most, least);
      }
      EXPECT_NEAR(fit[i], most, 1e-9);
    }
  }
}

TEST(CostCurve, is_made_of_medians_that_never_fall_and_lines_between_them) {
  std::vector<CostSample> samples;
  for (const double t : {10.0, 11.0, 90.0}) samples.push_back({1, 0, t});
  for (const double t : {8.0, 9.0, 10.0}) samples.push_back({2, 0, t});  // faster than one row: noise
  samples.push_back({4, 0, 20});
  samples.push_back({32, 0, 48});
  samples.push_back({8, 1000, 40});
  for (const CostSample& ignored : {CostSample{0, 0, 5}, CostSample{65, 0, 5}, CostSample{5, 0, -1}, CostSample{5, 0, static_cast<double>(NAN)}, CostSample{5, -1, 5}})
    samples.push_back(ignored);
  const CostCurve curve = fit_curve(samples);
  EXPECT_TRUE(curve.measured);
  ASSERT_EQ(curve.bands.size(), 2u);
  EXPECT_DOUBLE_EQ(curve.ms(1, 0), 9.45) << "11, held to 9.9, and 9 are made level";
  EXPECT_DOUBLE_EQ(curve.ms(2, 0), 9.45);
  EXPECT_DOUBLE_EQ(curve.ms(3, 0), 14.725);
  EXPECT_EQ(curve.ms(4, 0), 20);
  EXPECT_EQ(curve.ms(18, 0), 34);
  EXPECT_EQ(curve.ms(32, 0), 48);
  EXPECT_EQ(curve.ms(64, 0), 96);
  EXPECT_EQ(curve.ms(128, 0), 192);
  EXPECT_EQ(curve.ms(4, 1000), 40);
  EXPECT_EQ(curve.ms(4, 500), 30);
  EXPECT_EQ(curve.ms(4, 2000), 60);
  EXPECT_EQ(curve.ms(4, -5), 20);
  EXPECT_TRUE(fit_curve({}).bands.empty());
}

TEST(CostCurve, a_disturbed_width_does_not_lift_its_neighbours) {
  std::vector<CostSample> samples;
  for (int32_t r = 1; r <= 64; ++r) samples.push_back({r, 0, 100.0 + r + (r == 9 ? 100 : 0)});
  const CostCurve curve = fit_curve(samples);
  for (int32_t r = 1; r <= 64; ++r) EXPECT_NEAR(curve.ms(r, 0), 100 + r, 6) << r;
}

TEST(CostCurve, a_context_that_looks_cheaper_is_not_drawn_on_below_zero) {
  const CostCurve curve = fit_curve(std::vector<CostSample>{{1, 100, 10}, {1, 200, 5}});
  EXPECT_EQ(curve.ms(1, 150), 7.5);
  EXPECT_EQ(curve.ms(1, 100000), 5);
}

TEST(CostCurve, two_ceilings_make_a_model) {
  const CostCurve curve = modelled_curve({1000, 0.5, 100, 2, 1});
  EXPECT_FALSE(curve.measured);
  EXPECT_DOUBLE_EQ(curve.ms(1, 0), 11);
  EXPECT_DOUBLE_EQ(curve.ms(20, 0), 11);
  EXPECT_DOUBLE_EQ(curve.ms(40, 0), 21);
  EXPECT_DOUBLE_EQ(curve.ms(1, 2048), 1 + (1000 + 1024) / 100.0);
  EXPECT_DOUBLE_EQ(curve.ms(1, 262144), 1 + (1000 + 131072) / 100.0) << "and on";
}

}  // namespace
}  // namespace espalier
