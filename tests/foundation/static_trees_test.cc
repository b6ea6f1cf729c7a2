// Drafted trees on the static unit give plain decoding's text on the same unit: prompts of the demo model, fp16. A row's bits depend on its
// sequence alone, so no near tie is excused.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "espalier/engine.h"

namespace espalier::test {
namespace {

const std::string kSource = ESPALIER_SOURCE_DIR;

std::vector<std::vector<int32_t>> prompts() {
  std::ifstream file(kSource + "/tests/fixtures/demo/greedy-40.jsonl");
  std::vector<std::vector<int32_t>> out;
  for (std::string line; std::getline(file, line);) {
    const Value v = std::move(parse_json(line)).value();
    std::vector<int32_t>& ids = out.emplace_back();
    for (const Value& id : v.find("prompt_ids")->as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  }
#ifndef ESPALIER_ALL_PROMPTS
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  out.resize(2);
#endif
  return out;
}

Answer answer(const Engine& engine, const std::vector<int32_t>& ids, const std::string& mode) {
  GenerateOptions options;
  options.temperature = 0;
  options.max_tokens = 40;
  options.speculate = mode;
  Prompt prompt;
  prompt.ids = ids;
  Result<Request> request = engine.request(prompt, options);
  EXPECT_TRUE(request.ok()) << (request.ok() ? "" : request.status().message());
  Result<Answer> out = request->run();
  EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.status().message());
  return out.ok() ? *out : Answer();
}

TEST(StaticTrees, every_prompt_gets_plain_decodings_answer) {
  const Result<Engine> engine = Engine::open({.model = kSource + "/models/demo", .unit = "static", .buckets = "64,128,256,512,1024,2048", .cache = false});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_NE(engine->info().drafter, "");
  int64_t tokens = 0, accepted = 0;
  for (const std::vector<int32_t>& ids : prompts()) {
    const Answer plain = answer(*engine, ids, "off"), drafted = answer(*engine, ids, "tree:48");
    EXPECT_EQ(drafted.token_ids, plain.token_ids) << ids.size() << " tokens of prompt";
    tokens += static_cast<int64_t>(plain.token_ids.size());
    accepted += drafted.speculation ? drafted.speculation->accepted : 0;
  }
  EXPECT_GT(accepted * 4, tokens);  // trees were there
  RecordProperty("tokens", static_cast<int>(tokens));
}

}  // namespace
}  // namespace espalier::test
