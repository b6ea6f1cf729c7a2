// SmolLM2-135M-Instruct (GGUF, Q4_1 with a Q8_0 embedding) against transformers in fp32 on its dequantised weights. Runs where
// tools/get-smollm2 has put the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file_map.h"
#include "base/json.h"
#include "base/thread_team.h"
#include "tiny_models.h"
#include "units/cpu/cpu_unit.h"
#include "units/reference/reference.h"
#include "weights/safetensors.h"

namespace espalier::test {
namespace {

namespace fs = std::filesystem;

std::string model_file() {
  const char* data = std::getenv("ESPALIER_TEST_DATA");
  const char* home = std::getenv("HOME");
  const fs::path root = data != nullptr && *data != '\0' ? fs::path(data) : fs::path(home == nullptr ? "/" : home) / ".cache/espalier/test-data";
  return (root / "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf").string();
}

// The slow test goes through everything that the fixture holds.
#ifdef ESPALIER_ALL_ANSWERS
constexpr size_t kFullRows = 3, kAnswers = 8, kTokens = 64;
#else
constexpr size_t kFullRows = 2, kAnswers = 2, kTokens = 24;
#endif

constexpr size_t kSaved = 64, kBest = 48;  // columns of `ids` and `logits`

struct Teacher {
  std::vector<int32_t> tokens, full_rows;
  std::vector<float> lse, logits, full_logits;
  std::vector<uint16_t> ids;
};

Teacher load_teacher() {
  Teacher out;
  const FileMap file = std::move(FileMap::open(std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/models/smollm2-135m-instruct.expect.safetensors")).value();
  const Safetensors tensors = std::move(parse_safetensors(file.bytes())).value();
  const auto copy = [&](const char* name, auto& to) {
    for (const TensorView& t : tensors.tensors)
      if (t.name == name) to.resize(t.data.size() / sizeof(to[0])), std::memcpy(to.data(), t.data.data(), t.data.size());
  };
  copy("token_ids", out.tokens);
  copy("full_rows", out.full_rows);
  copy("lse", out.lse);
  copy("logits", out.logits);
  copy("full_logits", out.full_logits);
  copy("ids", out.ids);
  return out;
}

class SmolLM2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(model_file())) GTEST_SKIP() << "no SmolLM2 here: tools/get-smollm2 fetches it";
    tiny_.checkpoint = std::make_unique<Checkpoint>(std::move(Checkpoint::open(model_file())).value());
    tiny_.plan = std::move(plan_model(*tiny_.checkpoint)).value();
    tiny_.weights = std::move(bind_weights(tiny_.plan, *tiny_.checkpoint)).value();
  }
  std::unique_ptr<Model> reference() {
    return std::move(make_reference_unit(static_cast<int>(default_thread_count()))->compile(tiny_.plan.program, tiny_.weights)).value();
  }
  TinyModel tiny_;
};

double log_sum(const float* logits, size_t n) {
  const double top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(logits[i] - top);
  return top + std::log(sum);
}

TEST_F(SmolLM2, reference_logits_are_those_of_transformers) {
  const Teacher t = load_teacher();
  const std::unique_ptr<Model> model = reference();
  const std::unique_ptr<State> state = std::move(model->make_state()).value();
  const size_t v = static_cast<size_t>(tiny_.plan.program.vocabulary);
  for (size_t i = 0; i < kFullRows; ++i) {
    const size_t row = static_cast<size_t>(t.full_rows[i]), begin = static_cast<size_t>(state->length());
    const std::vector<float> logits = last_logits(*model, *state, std::span(t.tokens).subspan(begin, row + 1 - begin));
    ASSERT_EQ(logits.size(), v);
    float worst = 0, largest = 0;
    for (size_t c = 0; c < v; ++c) {
      largest = std::max(largest, std::fabs(t.full_logits[i * v + c]));
      worst = std::max(worst, std::fabs(t.full_logits[i * v + c] - logits[c]));
    }
    EXPECT_LE(worst, 1e-3f * largest) << "row " << row;
    std::printf("SmolLM2, reference unit, row %zu: largest difference %.2g of the largest logit\n", row, static_cast<double>(worst / largest));
  }
}

// Mean KL and top-1 agreement of a model's logits with the teacher's, estimated as the fixture's README says.
struct Agreement {
  double kl = 0, top1 = 0;
};
Agreement agreement(const Teacher& t, const std::vector<float>& logits, size_t vocabulary, size_t first, size_t rows) {
  Agreement a;
  for (size_t r = 0; r < rows; ++r) {
    const float* q = &logits[r * vocabulary];
    const double lse = log_sum(q, vocabulary);
    double kl = 0, mass = 0, rest = 0;
    for (size_t c = 0; c < kSaved; ++c) {
      const size_t at = (first + r) * kSaved + c;
      const double lp = static_cast<double>(t.logits[at]) - static_cast<double>(t.lse[first + r]), d = lp - (q[t.ids[at]] - lse);
      if (c < kBest) kl += std::exp(lp) * d, mass += std::exp(lp);
      else rest += d / static_cast<double>(kSaved - kBest);
    }
    a.kl += kl + (1 - mass) * rest;
    a.top1 += std::max_element(q, q + vocabulary) - q == t.ids[(first + r) * kSaved];
  }
  return a;
}

TEST_F(SmolLM2, the_cpu_unit_stays_close_teacher_forced_on_a_thousand_tokens) {
  const Teacher t = load_teacher();
  const std::unique_ptr<CpuUnit> unit = std::move(CpuUnit::make({})).value();
  const std::unique_ptr<Model> model = std::move(unit->compile(tiny_.plan.program, tiny_.weights)).value();
  const std::unique_ptr<State> state = std::move(model->make_state()).value();
  Agreement sum;
  for (size_t begin = 0; begin < t.tokens.size(); begin += 100) {
    const std::vector<float> logits = run_chain(*model, *state, std::span(t.tokens).subspan(begin, 100));
    const Agreement a = agreement(t, logits, static_cast<size_t>(tiny_.plan.program.vocabulary), begin, 100);
    sum.kl += a.kl;
    sum.top1 += a.top1;
  }
  const double n = static_cast<double>(t.tokens.size());
  RecordProperty("mean_kl", std::to_string(sum.kl / n));
  RecordProperty("top1", std::to_string(sum.top1 / n));
  EXPECT_LE(sum.kl / n, 0.006);
  EXPECT_GE(sum.top1 / n, 0.95);
  std::printf("SmolLM2, CPU unit, Q4_1: mean KL %.5f, top-1 %.1f %%\n", sum.kl / n, 100 * sum.top1 / n);
}

TEST_F(SmolLM2, reference_greedy_answers_are_the_same_text) {
  std::ifstream file(std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/models/smollm2-135m-instruct.greedy.json");
  std::stringstream text;
  text << file.rdbuf();
  const Value json = std::move(parse_json(text.str())).value();
  const Value::Array& answers = json.is_array() ? json.as_array() : json.find("answers")->as_array();
  const std::unique_ptr<Model> model = reference();
  ASSERT_GE(answers.size(), kAnswers);
  for (size_t i = 0; i < kAnswers; ++i) {
    std::vector<int32_t> prompt, expected;
    for (const Value& id : answers[i].find("prompt_ids")->as_array()) prompt.push_back(static_cast<int32_t>(id.as_int()));
    for (const Value& id : answers[i].find("answer_ids")->as_array()) expected.push_back(static_cast<int32_t>(id.as_int()));
    expected.resize(std::min(expected.size(), kTokens));
    const std::unique_ptr<State> state = std::move(model->make_state()).value();
    std::vector<float> logits = last_logits(*model, *state, prompt);
    for (size_t k = 0; k < expected.size(); ++k) {
      const int32_t best = best_id(logits);
      ASSERT_EQ(best, expected[k]) << "answer " << i << ", token " << k;  // no gap of the fixture is below 0.01
      if (k + 1 < expected.size()) logits = last_logits(*model, *state, std::span(&best, 1));
    }
  }
}

}  // namespace
}  // namespace espalier::test
