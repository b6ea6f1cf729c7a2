// The static unit as callers have it: drafts change no text, buckets are options, contexts end with the largest.
#include <gtest/gtest.h>

#include "base/json.h"
#include "espalier/engine.h"
#include "tiny_models.h"

namespace espalier::test {
namespace {

const std::string kDemo = std::string(ESPALIER_SOURCE_DIR) + "/models/demo";

Result<Engine> open(const std::string& model, const std::string& buckets, int64_t context = 0, const std::string& weights = "auto", const std::string& kv = "fp16") {
  return Engine::open({.model = model, .unit = "static", .buckets = buckets, .weights = weights, .kv = kv, .threads = 2, .context = context, .cache = false});
}

std::string refusal(const Result<Engine>& engine) { return engine.ok() ? "it was opened" : engine.status().message(); }

Answer ask(const Engine& engine, const std::string& text, double temperature, const std::string& mode) {
  GenerateOptions options;
  options.temperature = temperature;
  options.seed = 5;
  options.max_tokens = 20;
  options.speculate = mode;
  Prompt prompt;
  prompt.raw = text;
  Result<Request> request = engine.request(prompt, options);
  EXPECT_TRUE(request.ok()) << (request.ok() ? "" : request.status().message());
  Result<Answer> answer = request->run();
  EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.status().message());
  return *answer;
}

TEST(StaticEngine, L41_drafts_change_no_text_across_buckets) {
  const Result<Engine> engine = open(kDemo, "64,96,512");
  ASSERT_TRUE(engine.ok()) << refusal(engine);
  EXPECT_NE(engine->info().drafter, "");
  int64_t accepted = 0;
  const std::string fox = "The quick brown fox jumps over the lazy dog. The quick brown fox";
  const std::string counting = "Count: one two three four five six, one two three four five six, one two three four five six, one two three four five six, one two";
  const std::pair<std::string, double> cases[] = {{fox, 0.0}, {fox, 0.8}, {counting, 0.0}};
  for (const auto& [text, temperature] : cases) {
    const Answer plain = ask(*engine, text, temperature, "off");
    for (const char* mode : {"chain:9", "tree:24"}) {
      const Answer drafted = ask(*engine, text, temperature, mode);
      EXPECT_EQ(drafted.token_ids, plain.token_ids) << mode;
      accepted += drafted.speculation->accepted;
    }
  }
  EXPECT_GT(accepted, 20);
}

TEST(StaticEngine, L49_a_text_ends_with_the_largest_bucket_and_the_notice_says_so) {
  const Result<Engine> engine = open(load_tiny("lfm2-f32").path, "64,96");
  ASSERT_TRUE(engine.ok()) << refusal(engine);
  EXPECT_EQ(engine->info().context, 96);
  std::string notices;
  for (const std::string& n : engine->info().notices) notices += n + "\n";
  EXPECT_NE(notices.find("the static unit's largest bucket takes 96: texts end there"), std::string::npos) << notices;
  GenerateOptions options;
  options.temperature = 0;
  options.logit_bias = {{20, 1000.0f}};  // never the end token
  Prompt prompt;
  prompt.ids = std::vector<int32_t>(90, 20);
  const Answer answer = std::move(std::move(engine->request(prompt, options)).value().run()).value();
  EXPECT_EQ(answer.token_ids.size(), 6u);
  EXPECT_EQ(answer.finish_reason, FinishReason::length);
  prompt.ids.resize(97, 20);
  const auto request = engine->request(prompt, options);
  ASSERT_FALSE(request.ok());
  EXPECT_NE(request.status().message().find("97"), std::string::npos);
  EXPECT_NE(request.status().message().find("96"), std::string::npos);
}

TEST(StaticEngine, options_that_it_does_not_hold_are_refused_by_name) {
  const std::string tiny = load_tiny("lfm2-f32").path;
  EXPECT_NE(refusal(open(tiny, "64,96", 128)).find("128 tokens, and the static unit's largest bucket takes 96"), std::string::npos) << refusal(open(tiny, "64,96", 128));
  EXPECT_NE(refusal(open(tiny, "64,x")).find("expected numbers with commas between them, found \"64,x\""), std::string::npos);
  EXPECT_NE(refusal(open(tiny, "96,64")).find("bucket 64: expected ascending numbers"), std::string::npos) << refusal(open(tiny, "96,64"));
  EXPECT_NE(refusal(open(tiny, "", 0, "int3")).find("weights"), std::string::npos);
  EXPECT_NE(refusal(open(tiny, "", 0, "auto", "int8")).find("kv"), std::string::npos);
  EXPECT_TRUE(open(tiny, "", 0, "int8").ok());
}

}  // namespace
}  // namespace espalier::test
