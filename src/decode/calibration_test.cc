#include "decode/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace espalier {
namespace {

std::vector<ScoredOutcome> outcomes_of(Platt truth, int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<ScoredOutcome> outcomes;
  for (int i = 0; i < count; ++i) {
    const float logit = (static_cast<float>(random() % 10001) / 10000.0f - 0.5f) * 8.0f;
    const double p = 1 / (1 + std::exp(-(static_cast<double>(truth.a) * logit + static_cast<double>(truth.b))));
    outcomes.push_back({logit, static_cast<double>(random() % 1000000) / 1e6 < p});
  }
  return outcomes;
}

TEST(Platt, logit_and_probability_undo_each_other) {
  for (float p = 0.001f; p < 1; p += 0.001f) EXPECT_NEAR(probability_of(logit_of(p)), p, 2e-6f);
  EXPECT_GT(logit_of(1.0f), 13.0f);
  EXPECT_LT(logit_of(0.0f), -13.0f);
  EXPECT_LE(probability_of(1e30f), 1.0f);
  EXPECT_GT(probability_of(-1e30f), 0.0f);
}

// The standard error of both parameters at 20,000 outcomes over logits in [-4, 4] is below 0.03.
TEST(Platt, fit_recovers_the_parameters_that_made_the_outcomes) {
  for (const Platt truth : {Platt{0.67f, -0.46f}, Platt{1, 0}, Platt{1.8f, 0.9f}, Platt{0.2f, 1.5f}}) {
    const Platt fit = fit_platt(outcomes_of(truth, 20000, 7));
    EXPECT_NEAR(fit.a, truth.a, 0.1f);
    EXPECT_NEAR(fit.b, truth.b, 0.1f);
  }
}

TEST(Platt, fit_keeps_to_its_start_without_outcomes_and_within_bounds_always) {
  const Platt none = fit_platt({}, {0.8f, -0.3f});
  EXPECT_EQ(none.a, 0.8f);
  EXPECT_EQ(none.b, -0.3f);
  std::vector<ScoredOutcome> separable, reversed;
  for (int i = -50; i <= 50; ++i) {
    separable.push_back({static_cast<float>(i) / 10, i > 0});
    reversed.push_back({static_cast<float>(i) / 10, i < 0});
  }
  for (const auto& outcomes : {separable, reversed}) {
    const Platt fit = fit_platt(outcomes, {}, 0);
    EXPECT_TRUE(std::isfinite(fit.a) && std::isfinite(fit.b));
    EXPECT_GE(fit.a, 0.05f);
    EXPECT_LE(fit.a, 10.0f);
  }
  const std::vector<ScoredOutcome> never(500, {2.0f, false});
  EXPECT_LT(apply(fit_platt(never), 2.0f), 0.02f);
}

TEST(Calibration, comes_near_the_fit_while_it_goes_along) {
  for (const Platt truth : {Platt{0.67f, -0.46f}, Platt{1.5f, 1}}) {
    Calibration online({{1, 0}}, 1e6f);
    for (const ScoredOutcome& o : outcomes_of(truth, 20000, 11)) online.learn(0, o.logit, o.accepted);
    EXPECT_NEAR(online.platts()[0].a, truth.a, 0.1f);
    EXPECT_NEAR(online.platts()[0].b, truth.b, 0.1f);
  }
}

TEST(Calibration, learns_within_a_few_outcomes_that_a_source_is_never_right_and_comes_back) {
  Calibration c({{1, 0}}, 256);
  for (int i = 0; i < 24; ++i) c.learn(0, logit_of(0.7f), false);
  EXPECT_LT(c.probability(0, logit_of(0.7f)), 0.25f);
  for (int i = 0; i < 3000; ++i) c.learn(0, logit_of(0.7f), false);
  EXPECT_LT(c.probability(0, logit_of(0.7f)), 0.01f);
  for (int i = 0; i < 600; ++i) c.learn(0, logit_of(0.7f), true);
  EXPECT_GT(c.probability(0, logit_of(0.7f)), 0.7f);
}

TEST(Calibration, slots_learn_apart_and_the_last_serves_all_beyond) {
  Calibration c({{1, 0}, {1, 0}});
  for (int i = 0; i < 50; ++i) c.learn(7, 0.0f, false);
  EXPECT_EQ(c.platts()[0].b, 0.0f);
  EXPECT_LT(c.platts()[1].b, -1.0f);
  EXPECT_EQ(c.probability(1, 0.5f), c.probability(100, 0.5f));
  Calibration still({{1, 0}}, 0);
  still.learn(0, 1.0f, false);
  EXPECT_EQ(still.platts()[0].b, 0.0f);
  c.learn(0, std::nanf(""), true);
  c.learn(0, INFINITY, true);
  EXPECT_EQ(c.platts()[0].b, 0.0f) << "what is no number teaches nothing";
}

TEST(Reliability, bins_and_log_loss_are_those_of_the_definition) {
  Reliability r;
  r.add(0.05f, false);
  r.add(0.95f, true);
  r.add(0.95f, false);
  r.add(1.0f, true);
  EXPECT_EQ(r.count(), 4);
  EXPECT_EQ(r.bins[0].count, 1);
  EXPECT_EQ(r.bins[9].count, 3);
  EXPECT_EQ(r.bins[9].accepted, 2);
  EXPECT_NEAR(r.bins[9].predicted, 2.9, 1e-5);
  EXPECT_NEAR(r.mean_log_loss(), -(std::log(0.95) + std::log(0.95) + std::log(0.05) + std::log(1 - 1e-6)) / 4, 1e-6);
}

}  // namespace
}  // namespace espalier
