// Several answers in one decoder, each with its own tree: every one equals its solo run, whatever arrives, ends or is
// cancelled beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/json.h"
#include "engine/batch.h"
#include "espalier/engine.h"
#include "speculation_drafts.h"
#include "tiny_models.h"

namespace espalier::test {
namespace {

const std::string kDemo = std::string(ESPALIER_SOURCE_DIR) + "/models/demo";

const Engine& engine_of(const std::string& model) {
  static std::map<std::string, std::unique_ptr<Engine>> engines;
  auto& engine = engines[model];
  if (!engine) {
    auto opened = Engine::open({.model = model, .threads = 1, .cache = false});
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.status().message());
    engine = std::make_unique<Engine>(*opened);
  }
  return *engine;
}

struct Ask {
  Prompt prompt;
  GenerateOptions options;
};

// Prompts that share nothing but a vocabulary, of 1 to 200 tokens, some of them repeating themselves.
std::vector<Ask> random_asks(Random& random, int count, int32_t vocabulary) {
  std::vector<Ask> asks;
  for (int i = 0; i < count; ++i) {
    Ask a;
    const int32_t length = 1 + random.below(i % 5 == 0 ? 200 : 40), period = 1 + random.below(30);
    for (int32_t t = 0; t < length; ++t)
      a.prompt.ids.push_back(t < period || random.below(20) == 0 ? 20 + random.below(vocabulary - 20) : a.prompt.ids[static_cast<size_t>(t - period)]);
    a.options.max_tokens = 1 + random.below(40);
    a.options.temperature = random.below(2) == 0 ? 0.0 : 0.9;
    a.options.seed = static_cast<uint64_t>(1000 + i);
    if (random.below(3) == 0) a.options.frequency_penalty = 0.4;
    if (random.below(4) == 0) a.options.logprobs = 2;
    if (random.below(4) == 0) a.options.top_k = 30;
    asks.push_back(std::move(a));
  }
  return asks;
}

std::string text_of(const Engine& engine, Answer answer) {
  answer.timings = {};
  answer.speculation.reset();
  return engine.to_json(answer);
}

std::vector<Answer> alone(const Engine& engine, const std::vector<Ask>& asks) {
  std::vector<Answer> answers;
  for (const Ask& a : asks) {
    GenerateOptions off = a.options;
    off.speculate = "off";
    answers.push_back(*engine.request(a.prompt, off)->run());
  }
  return answers;
}

Request request_of(const Engine& engine, const Ask& ask, const std::string& mode) {
  GenerateOptions options = ask.options;
  options.speculate = mode;
  return std::move(engine.request(ask.prompt, options)).value();
}

TEST(SpeculationBatch, requests_that_run_together_give_what_each_gives_alone) {
  Random random(1);
  for (const std::string& model : {kDemo, load_tiny("lfm2-f32").path, load_tiny("qwen3-bf16").path}) {
    const Engine& engine = engine_of(model);
    const std::vector<Ask> asks = random_asks(random, 14, engine.info().vocabulary);
    const std::vector<Answer> expected = alone(engine, asks);
    for (const auto& [mode, sequences] : {std::pair<const char*, int>{"auto", 4}, {"tree:40", 3}, {"chain:6", 8}, {"off", 5}, {"tree:64", 14}, {"tree:8", 1}}) {
      std::vector<Request> requests;
      for (const Ask& a : asks) requests.push_back(request_of(engine, a, mode));
      std::vector<int> times(asks.size());
      engine.run_together(requests, sequences, [&](size_t index, Result<Answer> answer) {
        ASSERT_TRUE(answer.ok()) << answer.status().message();
        ++times[index];
        EXPECT_EQ(text_of(engine, *answer), text_of(engine, expected[index])) << model << ", " << mode << ", request " << index;
      });
      EXPECT_EQ(times, std::vector<int>(asks.size(), 1));
    }
  }
}

TEST(SpeculationBatch, modes_may_differ_from_request_to_request) {
  Random random(2);
  const Engine& engine = engine_of(kDemo);
  const std::vector<Ask> asks = random_asks(random, 9, engine.info().vocabulary);
  const std::vector<Answer> expected = alone(engine, asks);
  const char* const modes[] = {"auto", "auto", "off", "tree:16", "off", "chain:3", "chain:3", "auto", "tree:16"};
  std::vector<Request> requests;
  for (size_t i = 0; i < asks.size(); ++i) requests.push_back(request_of(engine, asks[i], modes[i]));
  engine.run_together(requests, 4, [&](size_t index, Result<Answer> answer) {
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(text_of(engine, *answer), text_of(engine, expected[index])) << index;
    EXPECT_EQ(answer->speculation ? answer->speculation->mode : "off", modes[index]);
  });
}

// Random arrivals and cancels, step by step.
void play(const Engine& engine, const std::string& mode, uint64_t seed) {
  Random random(seed);
  const std::vector<Ask> asks = random_asks(random, 12, engine.info().vocabulary);
  const std::vector<Answer> expected = alone(engine, asks);
  std::deque<Request> requests;  // do not move while they run
  std::vector<int> arrives(asks.size()), dies(asks.size(), -1);
  for (size_t i = 0; i < asks.size(); ++i) {
    arrives[i] = random.below(25);
    if (random.below(3) == 0) dies[i] = arrives[i] + random.below(10);
    requests.push_back(request_of(engine, asks[i], mode));
  }
  const Callbacks none;
  size_t done = 0, cancelled = 0;
  Batch batch(*engine.impl(), requests[0].impl().prepared.speculate);
  for (int step = 0; done < asks.size(); ++step) {
    ASSERT_LT(step, 2000);
    for (size_t i = 0; i < asks.size(); ++i) {
      if (arrives[i] == step) {
        ASSERT_TRUE(batch.add(i, requests[i].impl().prepared, requests[i].impl().cancelled, none).ok());
      }
      if (dies[i] == step) requests[i].cancel();
    }
    batch.step([&](size_t key, Result<Answer> answer) {
      ++done;
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      if (answer->finish_reason != FinishReason::cancelled) {
        EXPECT_EQ(text_of(engine, *answer), text_of(engine, expected[key])) << mode << ", seed " << seed << ", request " << key;
        return;
      }
      ++cancelled;
      const auto& all = expected[key].token_ids;
      ASSERT_LE(answer->token_ids.size(), all.size());
      EXPECT_TRUE(std::equal(answer->token_ids.begin(), answer->token_ids.end(), all.begin())) << mode << ", seed " << seed << ", request " << key;
    });
  }
  EXPECT_EQ(batch.size(), 0u);
  EXPECT_GT(cancelled, 0u);
}

TEST(SpeculationBatch, L45_random_arrivals_lengths_and_cancels_change_no_text) {
  for (const char* mode : {"auto", "tree:48", "off"})
    for (uint64_t seed = 1; seed <= 4; ++seed) play(engine_of(load_tiny(seed % 2 == 0 ? "lfm2-f32" : "llama-bf16").path), mode, seed);
  for (uint64_t seed = 5; seed <= 6; ++seed) play(engine_of(kDemo), "auto", seed);
}

TEST(SpeculationBatch, the_drafter_drafts_for_all_of_them) {
  const Engine& engine = engine_of(kDemo);
  std::vector<Request> requests;
  for (const char* text : {"Tell me about the weather in Paris.", "Book a table for two at an Italian restaurant.", "Play some music by Mozart."}) {
    Prompt prompt;
    Value message = Value::object();
    message.set("role", "user");
    message.set("content", text);
    prompt.messages = to_json(Value(Value::Array{message}));
    GenerateOptions options;
    options.temperature = 0;
    options.max_tokens = 24;
    options.speculate = "tree:48";
    requests.push_back(std::move(engine.request(prompt, options)).value());
  }
  engine.run_together(requests, 3, [&](size_t index, Result<Answer> answer) {
    ASSERT_TRUE(answer.ok());
    ASSERT_EQ(answer->speculation->by_source.empty(), false);
    int64_t drafted = 0;
    for (const auto& s : answer->speculation->by_source) drafted += s.name == "dspark" ? s.drafted : 0;
    EXPECT_GT(drafted, 0) << index;
  });
}

TEST(SpeculationBatch, an_answer_whose_call_fails_takes_no_other_with_it) {
  for (const char* mode : {"auto", "off", "tree:30"}) {
    const Engine engine = std::move(Engine::open({.model = kDemo, .threads = 1, .cache = false})).value();
    Random random(7);
    std::vector<Ask> asks = random_asks(random, 6, engine.info().vocabulary);
    constexpr int32_t kPoison = 19;  // no prompt has it but one; no answer may
    for (Ask& a : asks) a.options.logit_bias = {{kPoison, -1000.0f}};
    const std::vector<Answer> expected = alone(engine, asks);
    asks[3].prompt.ids.back() = kPoison;
    auto inner = std::move(engine.impl()->model);
    engine.impl()->model = std::make_unique<Poisoned>(*inner, kPoison);
    {
      std::vector<Request> requests;
      for (const Ask& a : asks) requests.push_back(request_of(engine, a, mode));
      std::vector<int> times(asks.size());
      engine.run_together(requests, 6, [&](size_t index, Result<Answer> answer) {
        ++times[index];
        ASSERT_EQ(answer.ok(), index != 3) << mode << ", " << index;
        if (!answer.ok()) {
          EXPECT_NE(answer.status().message().find("not finite"), std::string::npos);
          return;
        }
        answer->warnings.clear();  // a drafted token may be the poison: it is told
        EXPECT_EQ(text_of(engine, *answer), text_of(engine, expected[index])) << mode << ", " << index;
      });
      EXPECT_EQ(times, std::vector<int>(asks.size(), 1));
    }
    engine.impl()->model = std::move(inner);
  }
}

TEST(SpeculationBatch, a_request_that_has_run_already_takes_no_other_with_it) {
  const Engine& engine = engine_of(kDemo);
  Random random(3);
  const std::vector<Ask> asks = random_asks(random, 4, engine.info().vocabulary);
  const std::vector<Answer> expected = alone(engine, asks);
  std::vector<Request> requests;
  for (const Ask& a : asks) requests.push_back(request_of(engine, a, "auto"));
  ASSERT_TRUE(requests[2].run().ok());
  int failed = 0;
  engine.run_together(requests, 4, [&](size_t index, Result<Answer> answer) {
    if (!answer.ok()) {
      EXPECT_EQ(index, 2u);
      ++failed;
      return;
    }
    EXPECT_EQ(text_of(engine, *answer), text_of(engine, expected[index]));
  });
  EXPECT_EQ(failed, 1);
}

}  // namespace
}  // namespace espalier::test
