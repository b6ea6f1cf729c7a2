// The reference unit against transformers in fp32, over every family and file format.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tiny_models.h"
#include "units/reference/reference.h"

namespace espalier::test {
namespace {

class EveryFixture : public testing::TestWithParam<std::string> {};

float largest(const std::vector<float>& v) {
  float m = 0;
  for (float x : v) m = std::max(m, std::fabs(x));
  return m;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float m = 0;
  for (size_t i = 0; i < a.size(); ++i) m = std::max(m, std::fabs(a[i] - b[i]));
  return m;
}

TEST_P(EveryFixture, logits_equal_those_of_transformers) {
  const TinyModel tiny = load_tiny(GetParam());
  const Expectation expected = load_expectation(GetParam());
  ASSERT_FALSE(expected.logits.empty());
  Result<std::unique_ptr<Model>> model = make_reference_unit()->compile(tiny.plan.program, tiny.weights);
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::unique_ptr<State> state = std::move((*model)->make_state()).value();
  std::vector<float> logits = run_chain(**model, *state, expected.prompt);
  for (int32_t token : expected.greedy) {
    const std::vector<float> row = run_chain(**model, *state, std::span(&token, 1));
    logits.insert(logits.end(), row.begin(), row.end());
  }
  ASSERT_EQ(logits.size(), expected.logits.size());
  // fp32 sums of some hundred terms in another order; the bound is the one the product states.
  EXPECT_LE(largest_difference(logits, expected.logits), 1e-4f * largest(expected.logits));
}

TEST_P(EveryFixture, greedy_text_equals_that_of_transformers) {
  const TinyModel tiny = load_tiny(GetParam());
  const Expectation expected = load_expectation(GetParam());
  Result<std::unique_ptr<Model>> model = make_reference_unit()->compile(tiny.plan.program, tiny.weights);
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::unique_ptr<State> state = std::move((*model)->make_state()).value();
  std::vector<float> logits = run_chain(**model, *state, expected.prompt);
  const size_t vocabulary = static_cast<size_t>(tiny.plan.program.vocabulary);
  std::vector<int32_t> text;
  while (text.size() < expected.greedy.size()) {
    // The fixtures hold no special tokens: the ids that have no text are never chosen there, so a plain argmax is enough.
    const auto row = logits.end() - static_cast<ptrdiff_t>(vocabulary);
    text.push_back(static_cast<int32_t>(std::max_element(row, logits.end()) - row));
    EXPECT_EQ(text.back(), expected.greedy[text.size() - 1]) << "token " << text.size() - 1;
    if (text.back() != expected.greedy[text.size() - 1]) break;
    logits = run_chain(**model, *state, std::span(&text.back(), 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, EveryFixture, testing::ValuesIn(all_tiny_models()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace espalier::test
