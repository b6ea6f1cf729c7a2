#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "base/json.h"
#include "decode/philox.h"

namespace espalier {
namespace {

Value fixture(const std::string& path) {
  std::ifstream in(std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/" + path);
  std::stringstream text;
  text << in.rdbuf();
  auto value = parse_json(text.str());
  EXPECT_TRUE(value.ok()) << path;
  return std::move(value).value();
}

std::vector<int32_t> ints(const Value& array) {
  std::vector<int32_t> out;
  for (const Value& v : array.as_array()) out.push_back(static_cast<int32_t>(v.as_int()));
  return out;
}

float number(const Value& v, const char* key) { return static_cast<float>(v.find(key)->as_double()); }

Sampling rules_of(const Value& c) {
  Sampling s;
  for (const Value& b : c.find("logit_bias")->as_array())
    s.logit_bias.emplace_back(static_cast<int32_t>(b.as_array()[0].as_int()), static_cast<float>(b.as_array()[1].as_double()));
  s.repetition_penalty = number(c, "repetition_penalty");
  s.presence_penalty = number(c, "presence_penalty");
  s.frequency_penalty = number(c, "frequency_penalty");
  s.temperature = number(c, "temperature");
  s.top_k = static_cast<int32_t>(c.find("top_k")->as_int());
  s.top_p = number(c, "top_p");
  s.min_p = number(c, "min_p");
  return s;
}

// Pearson's statistic of draws against probabilities; cells with an expectation below 5 are joined.
double chi_square(const std::map<int32_t, int>& seen, const std::map<int32_t, double>& p, int draws, int* freedom) {
  double sum = 0, small_expected = 0, small_seen = 0;
  int cells = 0;
  for (const auto& [id, probability] : p) {
    const double expected = probability * draws, n = seen.count(id) ? seen.at(id) : 0;
    if (expected < 5) {
      small_expected += expected;
      small_seen += n;
      continue;
    }
    sum += (n - expected) * (n - expected) / expected;
    ++cells;
  }
  if (small_expected > 1) {
    sum += (small_seen - small_expected) * (small_seen - small_expected) / small_expected;
    ++cells;
  }
  *freedom = std::max(cells - 1, 1);
  return sum;
}

// The 1e-4 quantile by Wilson and Hilferty: seeds are fixed, so this is a bound and not a gamble.
double chi_square_limit(int freedom) {
  const double h = 2.0 / (9.0 * freedom), t = 1 - h + 3.719 * std::sqrt(h);
  return freedom * t * t * t;
}

// Random123's kat_vectors, philox4x32 10.
TEST(Philox, equals_the_published_vectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffffu;
  EXPECT_EQ(philox4x32_10({f, f, f, f}, {f, f}), (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Gumbel, has_the_mean_and_deviation_of_its_distribution_and_is_finite) {
  double sum = 0, squares = 0;
  constexpr int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double g = gumbel(7, i / 1000, i % 1000, 0);
    ASSERT_TRUE(g > -2.86 && g < 17.33);
    sum += g;
    squares += g * g;
  }
  const double mean = sum / n, variance = squares / n - mean * mean;
  EXPECT_NEAR(mean, 0.5772157, 4 * 1.2825 / std::sqrt(n));
  EXPECT_NEAR(variance, 1.644934, 0.05);
}

TEST(Gumbel, differs_by_seed_position_id_and_choice) {
  const float g = gumbel(1, 2, 3, 0);
  EXPECT_EQ(g, gumbel(1, 2, 3, 0));
  EXPECT_NE(g, gumbel(2, 2, 3, 0));
  EXPECT_NE(g, gumbel(1ull << 32 | 1, 2, 3, 0));
  EXPECT_NE(g, gumbel(1, 3, 3, 0));
  EXPECT_NE(g, gumbel(1, 2, 4, 0));
  EXPECT_NE(g, gumbel(1, 2, 3, 1));
}

TEST(Sampler, survivors_are_those_of_transformers_and_draws_follow_their_probabilities) {
  int n = 0;
  const Value cases = fixture("sampler/cases.json");
  for (const Value& c : cases.as_array()) {
    SCOPED_TRACE("case " + std::to_string(n++));
    std::vector<float> logits;
    for (const Value& v : c.find("logits")->as_array()) logits.push_back(static_cast<float>(v.as_double()));
    History history;
    history.add_prompt(ints(*c.find("prompt")));
    for (const int32_t id : ints(*c.find("answer"))) history.push(id);
    Sampler sampler(rules_of(c));

    std::map<int32_t, double> expected;
    for (const Value& s : c.find("survivors")->as_array())
      expected[static_cast<int32_t>(s.as_array()[0].as_int())] = s.as_array()[1].as_double();
    std::map<int32_t, int> seen;
    constexpr int draws = 1000;
    for (int position = 0; position < draws; ++position) ++seen[sampler.choose(logits, history, position)];

    std::map<int32_t, double> got;
    double total = 0, best = -1e30;
    for (const TopEntry& e : sampler.survivors()) best = std::max<double>(best, e.logit / sampler.rules().temperature);
    for (const TopEntry& e : sampler.survivors()) total += got[e.id] = std::exp(e.logit / sampler.rules().temperature - best);
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [id, p] : expected) {
      ASSERT_TRUE(got.count(id)) << id;
      EXPECT_NEAR(got[id] / total, p, 2e-6) << id;
    }
    for (const auto& [id, times] : seen) EXPECT_TRUE(expected.count(id)) << id << " drawn " << times << " times";
    int freedom = 1;
    if (expected.size() > 1) {
      const double x = chi_square(seen, expected, draws, &freedom);
      EXPECT_LT(x, chi_square_limit(freedom)) << freedom << " degrees of freedom";
    }
  }
  EXPECT_EQ(n, 60);
}

TEST(Sampler, ties_are_ordered_by_id) {
  const std::vector<float> logits = {1, 3, 3, -0.0f, 3, 0.0f};
  Sampling greedy;
  greedy.temperature = 0;
  EXPECT_EQ(Sampler(greedy).choose(logits, {}, 0), 1);
  Sampling two;
  two.top_k = 2;
  Sampler sampler(two);
  for (int i = 0; i < 200; ++i) {
    const int32_t id = sampler.choose(logits, {}, i);
    EXPECT_TRUE(id == 1 || id == 2) << id;
  }
  Sampling nucleus;
  nucleus.top_p = 0.999999f;
  Sampler sorted(nucleus);
  (void)sorted.choose(logits, {}, 0);
  std::vector<int32_t> order;
  for (const TopEntry& e : sorted.survivors()) order.push_back(e.id);
  EXPECT_EQ(order, (std::vector<int32_t>{1, 2, 4, 0, 3, 5}));
}

TEST(Sampler, the_best_entries_alone_give_the_token_of_all_logits) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 2);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> logits(500);
    for (float& x : logits) x = std::round(normal(rng) * 4) / 4;  // many ties
    Sampling rules;
    rules.top_k = 1 + trial % 40;
    rules.temperature = trial % 3 == 0 ? 0.7f : 1.3f;
    rules.top_p = trial % 2 == 0 ? 0.9f : 1;
    rules.min_p = trial % 5 == 0 ? 0.05f : 0;
    rules.seed = static_cast<uint64_t>(trial);
    std::vector<TopEntry> all(logits.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<int32_t>(i), logits[i]};
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
    all.resize(static_cast<size_t>(rules.top_k));
    Sampler sampler(rules);
    ASSERT_EQ(sampler.needs(), Sampler::Needs::top);
    EXPECT_EQ(sampler.choose(all, trial), sampler.choose(logits, {}, trial));
  }
}

TEST(Sampler, skipping_hopeless_candidates_changes_nothing) {
  std::mt19937 rng(4);
  Sampling rules;
  rules.seed = 99;
  Sampler sampler(rules);
  std::vector<float> logits(5000);
  for (const float spread : {0.1f, 1.0f, 6.0f, 400.0f})  // the flatter, the more the noise decides
    for (int position = 0; position < 60; ++position) {
      std::normal_distribution<float> normal(0, spread);
      for (float& x : logits) x = normal(rng);
      int32_t best = 0;
      float most = -1e30f;
      for (int32_t id = 0; id < 5000; ++id)
        if (const float v = logits[static_cast<size_t>(id)] + gumbel(99, position, id, 0); v > most) {
          most = v;
          best = id;
        }
      EXPECT_EQ(sampler.choose(logits, {}, position), best) << spread;
    }
}

TEST(Sampler, penalties_follow_a_path_that_is_pushed_and_popped) {
  Sampling rules;
  rules.temperature = 0;
  rules.frequency_penalty = 1;
  Sampler sampler(rules);
  const std::vector<float> logits = {1.5f, 1, 0};
  History history;
  history.add_prompt(std::vector<int32_t>{0, 0, 0});  // the answer alone counts
  EXPECT_EQ(sampler.choose(logits, history, 0), 0);
  history.push(0);
  EXPECT_EQ(sampler.choose(logits, history, 1), 1);
  history.push(1);
  EXPECT_EQ(sampler.choose(logits, history, 2), 0);
  history.pop(1);
  EXPECT_EQ(sampler.choose(logits, history, 2), 1);
  history.pop(0);
  EXPECT_EQ(sampler.choose(logits, history, 0), 0);
}

// TensorRT-LLM#19390: a request with top_k and no temperature was decoded greedily.
TEST(Sampler, L44_top_k_without_a_temperature_samples) {
  SamplingRequest request;
  request.top_k = 50;
  const Value none;
  auto rules = resolve_sampling(request, none, 100);
  ASSERT_TRUE(rules.ok());
  EXPECT_EQ(rules->temperature, 1);
  EXPECT_FALSE(rules->greedy());
  std::vector<float> logits(100);
  for (int i = 0; i < 100; ++i) logits[i] = static_cast<float>(std::sin(i * 12.9898) * 1.5);
  std::map<int32_t, int> seen;
  constexpr int draws = 200;
  for (uint64_t seed = 0; seed < draws; ++seed) {
    Sampling s = *rules;
    s.seed = seed;
    ++seen[Sampler(s).choose(logits, {}, 12)];
  }
  std::vector<int32_t> order(100);
  for (int i = 0; i < 100; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  std::map<int32_t, double> expected;
  double total = 0;
  for (int i = 0; i < 50; ++i) total += expected[order[i]] = std::exp(logits[order[i]]);
  for (auto& [id, p] : expected) p /= total;
  for (const auto& [id, times] : seen) EXPECT_TRUE(expected.count(id)) << id << " × " << times;
  EXPECT_GT(seen.size(), 20u);
  int freedom = 1;
  const double x = chi_square(seen, expected, draws, &freedom);
  EXPECT_LT(x, chi_square_limit(freedom));
}

TEST(Sampling, the_request_beats_the_config_which_beats_the_engine) {
  const Value config = *parse_json(R"({"temperature":0.3,"top_k":7,"min_p":0.15,"repetition_penalty":1.05,"top_p":null})");
  auto plain = resolve_sampling({}, config, 10);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->temperature, 0.3f);
  EXPECT_EQ(plain->top_k, 7);
  EXPECT_EQ(plain->min_p, 0.15f);
  EXPECT_EQ(plain->top_p, 1.0f);
  EXPECT_EQ(plain->repetition_penalty, 1.05f);
  SamplingRequest request;
  request.temperature = 0.9;
  request.top_k = 0;
  request.repetition_penalty = 1;
  auto asked = resolve_sampling(request, config, 10);
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(asked->temperature, 0.9f);
  EXPECT_EQ(asked->top_k, 0);
  EXPECT_EQ(asked->repetition_penalty, 1.0f);
  EXPECT_EQ(asked->min_p, 0.15f);
}

TEST(Sampling, penalties_of_the_config_hold_only_when_sampling) {
  const Value config = *parse_json(R"({"repetition_penalty":1.2,"presence_penalty":0.5})");
  SamplingRequest request;
  request.temperature = 0;
  EXPECT_FALSE(resolve_sampling(request, config, 10)->changes_logits());
  request.repetition_penalty = 1.2;
  EXPECT_TRUE(resolve_sampling(request, config, 10)->changes_logits());
  EXPECT_TRUE(resolve_sampling({}, config, 10)->changes_logits());
}

TEST(Sampling, do_sample_false_is_greedy_unless_the_request_samples) {
  const Value config = *parse_json(R"({"do_sample":false,"temperature":0.6})");
  EXPECT_TRUE(resolve_sampling({}, config, 10)->greedy());
  SamplingRequest request;
  request.top_k = 50;
  EXPECT_EQ(resolve_sampling(request, config, 10)->temperature, 0.6f);
}

TEST(Sampling, values_outside_their_range_are_refused_with_the_field) {
  const auto field = [](auto set) {
    SamplingRequest request;
    set(request);
    auto got = resolve_sampling(request, {}, 10);
    return got.ok() ? std::string("ok") : got.status().field();
  };
  EXPECT_EQ(field([](auto& r) { r.temperature = -0.1; }), "temperature");
  EXPECT_EQ(field([](auto& r) { r.temperature = NAN; }), "temperature");
  EXPECT_EQ(field([](auto& r) { r.top_k = -1; }), "top_k");
  EXPECT_EQ(field([](auto& r) { r.top_p = 0; }), "top_p");
  EXPECT_EQ(field([](auto& r) { r.top_p = 1.01; }), "top_p");
  EXPECT_EQ(field([](auto& r) { r.min_p = 2; }), "min_p");
  EXPECT_EQ(field([](auto& r) { r.repetition_penalty = 0; }), "repetition_penalty");
  EXPECT_EQ(field([](auto& r) { r.presence_penalty = 1e9; }), "presence_penalty");
  EXPECT_EQ(field([](auto& r) { r.frequency_penalty = -1e9; }), "frequency_penalty");
  EXPECT_EQ(field([](auto& r) { r.logit_bias = {{10, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(field([](auto& r) { r.logit_bias = {{-1, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(field([](auto& r) { r.logit_bias = {{1, NAN}}; }), "logit_bias");
  EXPECT_EQ(field([](auto& r) { r.logit_bias = {{1, 1.0f}, {1, 2.0f}}; }), "logit_bias");
  EXPECT_EQ(field([](auto& r) { r.logit_bias = {{9, -1.0f}}; }), "ok");
  const Value bad = *parse_json(R"({"top_k":"many"})");
  EXPECT_EQ(resolve_sampling({}, bad, 10).status().field(), "top_k");
}

}  // namespace
}  // namespace espalier
