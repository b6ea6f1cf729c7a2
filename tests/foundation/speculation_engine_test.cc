// Speculation as callers have it: the demo model with its drafter, tiny models with n-grams, all modes against `off`.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/json.h"
#include "engine/conversation.h"
#include "espalier/engine.h"
#include "espalier/espalier.h"
#include "tiny_models.h"

namespace espalier::test {
namespace {

const std::string kDemo = std::string(ESPALIER_SOURCE_DIR) + "/models/demo";

Engine open(const std::string& model, const std::string& speculate = "auto", const std::string& unit = "cpu", const std::string& drafter = "") {
  auto engine = Engine::open({.model = model, .unit = unit, .threads = 1, .speculate = speculate, .drafter = drafter, .cache = false});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return *engine;
}

// The demo model with its drafter on the CPU, opened once.
const Engine& demo() {
  static const Engine engine = open(kDemo);
  return engine;
}

std::string question(const std::string& text) {
  Value m = Value::object();
  m.set("role", "user");
  m.set("content", text);
  return to_json(Value(Value::Array{m}));
}

Answer ask(const Engine& engine, const Prompt& prompt, GenerateOptions options, const std::string& mode) {
  options.speculate = mode;
  auto request = engine.request(prompt, options);
  EXPECT_TRUE(request.ok()) << (request.ok() ? "" : request.status().message());
  auto answer = request->run();
  EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.status().message());
  return *answer;
}

// All that an answer says but times and what was drafted; short enough to be read in a failure.
std::string text_of(const Engine& engine, Answer answer) {
  answer.timings = {};
  answer.speculation.reset();
  return engine.to_json(answer);
}

// No half characters at its ends.
bool is_whole_text(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

const std::vector<std::string>& modes() {
  static const std::vector<std::string> list = {"auto", "chain:1", "chain:9", "chain:63", "tree:2", "tree:16", "tree:24", "tree:64"};
  return list;
}

std::vector<Prompt> demo_prompts() {
  std::vector<Prompt> prompts(4);
  prompts[0].messages = question("I am looking for an Italian restaurant in Berkeley, please.");
  prompts[0].tools =
      R"([{"type":"function","function":{"name":"find_restaurants","description":"Finds restaurants","parameters":{"type":"object","properties":{"city":{"type":"string"},"cuisine":{"type":"string"}},"required":["city","cuisine"]}}}])";
  prompts[1].messages = question("Tell me a story about a lighthouse.");
  prompts[2].messages = question("Count: one two three four five six, one two three four five six, one two three");
  prompts[3].raw = "The quick brown fox jumps over the lazy dog. The quick brown fox";
  return prompts;
}

std::vector<GenerateOptions> demo_options() {
  std::vector<GenerateOptions> list(4);
  list[0].temperature = 0;
  list[0].seed = 10;
  list[1].temperature = 0.8;
  list[1].repetition_penalty = 1.1;
  list[1].frequency_penalty = 0.2;
  list[1].seed = 11;
  list[2].temperature = 0;
  list[2].seed = 10;
  list[2].stop = {"e ", "in the", "\""};
  list[2].logprobs = 2;
  list[3].top_k = 50;  // and no temperature
  list[3].seed = 12;
  for (GenerateOptions& o : list) o.max_tokens = 40;
  return list;
}

TEST(SpeculationEngine, L40_every_mode_gives_the_answers_of_off_with_the_demo_models_drafter) {
  const Engine& engine = demo();
  ASSERT_NE(engine.info().drafter, "");
  int64_t accepted = 0, by_drafter = 0;
  for (const Prompt& prompt : demo_prompts())
    for (const GenerateOptions& options : demo_options()) {
      const Answer plain = ask(engine, prompt, options, "off");
      EXPECT_FALSE(plain.speculation.has_value());
      for (const std::string& mode : modes()) {
        const Answer answer = ask(engine, prompt, options, mode);
        EXPECT_EQ(text_of(engine, answer), text_of(engine, plain)) << mode;
        ASSERT_TRUE(answer.speculation.has_value());
        accepted += answer.speculation->accepted;
        for (const auto& s : answer.speculation->by_source) by_drafter += s.name == "dspark" ? s.accepted : 0;
      }
    }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(by_drafter, 200);
}

TEST(SpeculationEngine, the_reference_unit_drafts_too) {
  const Engine engine = open(kDemo, "tree:12", "reference");
  ASSERT_NE(engine.info().drafter, "");
  GenerateOptions options = demo_options()[0];
  options.max_tokens = 12;
  const Answer plain = ask(engine, demo_prompts()[1], options, "off"), tree = ask(engine, demo_prompts()[1], options, "tree:12");
  EXPECT_EQ(text_of(engine, tree), text_of(engine, plain));
  EXPECT_GT(tree.speculation->accepted, 0);
}

TEST(SpeculationEngine, without_a_drafter_n_grams_draft) {
  for (const std::string& name : one_of_each_family()) {
    const Engine engine = open(load_tiny(name).path);
    EXPECT_EQ(engine.info().drafter, "");
    Prompt prompt;
    for (int i = 0; i < 60; ++i) prompt.ids.push_back(20 + i % 6);
    GenerateOptions options = demo_options()[0];
    options.logit_bias = {{20, 60.0f}};  // a text that repeats itself
    const Answer plain = ask(engine, prompt, options, "off");
    int64_t accepted = 0;
    for (const std::string& mode : modes()) {
      const Answer answer = ask(engine, prompt, options, mode);
      EXPECT_EQ(text_of(engine, answer), text_of(engine, plain)) << name << ", " << mode;
      accepted += answer.speculation->accepted;
      for (const auto& s : answer.speculation->by_source) EXPECT_EQ(s.name, "ngram");
    }
    EXPECT_GT(accepted, 20) << name;
  }
}

TEST(SpeculationEngine, a_conversation_goes_on_as_if_nothing_had_been_drafted) {
  const Engine& engine = demo();
  const char* const turns[] = {"Hello! What can you do?", "Tell me about the weather in Paris.", "And what about London, then?", "Thank you."};
  for (const GenerateOptions& base : demo_options()) {
    std::vector<std::byte> drafters;  // its state, whatever was accepted and in what portions it was read
    for (const char* mode : {"tree:24", "auto", "chain:2"}) {
      auto plain = engine.conversation(), drafted = engine.conversation();
      for (const char* turn : turns) {
        GenerateOptions off = base, on = base;
        off.speculate = "off";
        on.speculate = mode;
        auto a = plain->ask(turn, off), b = drafted->ask(turn, on);
        ASSERT_TRUE(a.ok() && b.ok());
        EXPECT_EQ(text_of(engine, *a), text_of(engine, *b)) << mode << ": " << turn;
        EXPECT_EQ(a->timings.reused_tokens, b->timings.reused_tokens);
      }
      EXPECT_EQ(plain->messages(), drafted->messages());
      EXPECT_EQ(serialize(plain->impl().state->export_neutral()), serialize(drafted->impl().state->export_neutral())) << mode;
      const std::vector<std::byte> drafter = serialize(drafted->impl().drafter->export_neutral());
      EXPECT_EQ(drafted->impl().drafter->length(), drafted->impl().state->length());
      if (drafters.empty()) drafters = drafter;
      EXPECT_EQ(drafter, drafters) << mode;
    }
  }
}

TEST(SpeculationEngine, L41_turns_with_and_without_drafts_alternate) {
  const Engine& engine = demo();
  auto plain = engine.conversation(), mixed = engine.conversation();
  const char* const modes_of_turns[] = {"tree:24", "off", "chain:4", "auto", "off", "tree:8"};
  bool warned = false;
  for (const char* mode : modes_of_turns) {
    GenerateOptions off = demo_options()[0], on = off;
    off.speculate = "off";
    on.speculate = mode;
    auto a = plain->ask("Tell me more about that.", off), b = mixed->ask("Tell me more about that.", on);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->token_ids, b->token_ids) << mode;
    for (const std::string& w : b->warnings) warned = warned || w.find("speculation was off") != std::string::npos;
  }
  EXPECT_TRUE(warned) << "the drafter misses a turn, and nobody says so";
}

TEST(SpeculationEngine, a_callback_that_cancels_ends_the_answer_where_plain_decoding_would) {
  const Engine& engine = demo();
  for (const char* mode : {"off", "tree:24"}) {
    GenerateOptions options = demo_options()[0];
    options.speculate = mode;
    auto request = engine.request(demo_prompts()[1], options);
    size_t deltas = 0;
    auto answer = request->run({.on_delta = [&](const Delta&) {
      if (++deltas == 5) request->cancel();
    }});
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->finish_reason, FinishReason::cancelled);
    EXPECT_EQ(answer->token_ids.size(), 5u) << mode;
  }
}

TEST(SpeculationEngine, L10_depths_that_no_block_has_are_clamped_with_a_notice_or_refused) {
  const Engine& engine = demo();
  const Answer plain = ask(engine, demo_prompts()[1], demo_options()[0], "off");
  for (const char* mode : {"chain:48", "chain:1000000000", "tree:1000000000"}) {
    const Answer answer = ask(engine, demo_prompts()[1], demo_options()[0], mode);
    EXPECT_EQ(answer.token_ids, plain.token_ids) << mode;
    if (std::string(mode).ends_with("000")) {
      EXPECT_FALSE(answer.warnings.empty()) << mode;
    }
  }
  for (const char* mode : {"chain:0", "chain:-1", "tree:0", "chain:", "chain", "tree:x", "", "AUTO"}) {
    GenerateOptions options;
    options.speculate = mode;
    EXPECT_FALSE(engine.request(demo_prompts()[1], options).ok()) << mode;
    EXPECT_FALSE(Engine::open({.model = kDemo, .speculate = mode, .cache = false}).ok()) << mode;
  }
}

TEST(SpeculationEngine, a_drafter_of_another_model_is_refused_where_it_was_named) {
  const std::string tiny = load_tiny("lfm2-f32").path;
  auto engine = Engine::open({.model = tiny, .drafter = kDemo + "/drafter", .cache = false});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().field(), "drafter");
  EXPECT_FALSE(Engine::open({.model = kDemo, .drafter = kDemo + "/nowhere", .cache = false}).ok());
  EXPECT_FALSE(Engine::open({.model = kDemo, .drafter = kDemo, .cache = false}).ok());
}

TEST(SpeculationEngine, requests_on_several_threads_share_the_drafter_and_give_what_each_gives_alone) {
  const Engine& engine = demo();
  std::vector<std::pair<Prompt, GenerateOptions>> asks;
  for (const Prompt& prompt : demo_prompts())
    for (const GenerateOptions& options : demo_options()) asks.emplace_back(prompt, options);
  std::vector<std::string> expected(asks.size()), got(asks.size());
  for (size_t i = 0; i < asks.size(); ++i) expected[i] = text_of(engine, ask(engine, asks[i].first, asks[i].second, "off"));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      const char* const kModes[] = {"auto", "tree:24", "auto"};
      for (size_t i = t; i < asks.size(); i += 3) got[i] = text_of(engine, ask(engine, asks[i].first, asks[i].second, kModes[t]));
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got, expected);
}

TEST(SpeculationEngine, c_callers_choose_the_mode_and_the_drafter) {
  const auto answer_of = [](const char* speculate, const char* drafter, const char* body) -> std::string {
    espalier_open_options open = ESPALIER_OPEN_OPTIONS_INIT;
    open.model = kDemo.c_str();
    open.threads = 1;
    open.no_cache = 1;
    open.speculate = speculate;
    open.drafter = drafter;
    espalier_engine* engine = nullptr;
    espalier_status* failed = espalier_open(&open, &engine);
    if (failed != nullptr) {
      const std::string field = espalier_status_field(failed);
      espalier_status_free(failed);
      return field;
    }
    espalier_request* request = nullptr;
    espalier_answer* answer = nullptr;
    EXPECT_EQ(espalier_request_new(engine, body, &request), nullptr);
    EXPECT_EQ(espalier_run(request, nullptr, &answer), nullptr);
    const Value speculation = *parse_json(espalier_answer_json(answer))->find("speculation");
    espalier_answer_free(answer);
    espalier_request_free(request);
    espalier_close(engine);
    return speculation.is_null() ? "null" : speculation.find("mode")->as_string();
  };
  const char* const body = R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"temperature":0})";
  const char* const asks = R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"temperature":0,"speculate":"chain:3"})";
  const std::string drafter = kDemo + "/drafter";
  EXPECT_EQ(answer_of(nullptr, nullptr, body), "auto");
  EXPECT_EQ(answer_of("tree:8", drafter.c_str(), body), "tree:8");
  EXPECT_EQ(answer_of("off", nullptr, body), "null");
  EXPECT_EQ(answer_of("off", nullptr, asks), "chain:3");
  EXPECT_EQ(answer_of("sometimes", nullptr, body), "speculate");
  EXPECT_EQ(answer_of("auto", "/no/such/folder", body), "drafter");
}

TEST(SpeculationEngine, L23_a_stop_string_anywhere_in_a_block_ends_the_text_right_before_itself) {
  const Engine& engine = demo();
  GenerateOptions options = demo_options()[0];
  Prompt prompt;
  prompt.messages = question("Repeat: alpha beta gamma delta");
  const std::string whole = ask(engine, prompt, options, "off").text;
  ASSERT_GE(whole.size(), 40u);
  for (size_t at = 0; at + 9 < whole.size(); at += 3) {
    const std::string stop = whole.substr(at, 2 + at % 8);
    if (!is_whole_text(stop)) continue;
    options.stop = {"no such text", stop};
    const Answer plain = ask(engine, prompt, options, "off");
    EXPECT_EQ(plain.text, whole.substr(0, whole.find(stop)));
    EXPECT_EQ(plain.stop_text, stop);
    for (const char* mode : {"tree:32", "chain:8"}) EXPECT_EQ(text_of(engine, ask(engine, prompt, options, mode)), text_of(engine, plain)) << mode << ", " << stop;
  }
}

TEST(SpeculationEngine, L44_top_k_without_a_temperature_samples_alike_with_and_without_drafts) {
  const Engine& engine = demo();
  std::vector<Request> plain, drafted;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    GenerateOptions options;
    options.top_k = 50;
    options.seed = seed;
    options.max_tokens = 6;
    options.speculate = "off";
    plain.push_back(std::move(engine.request(demo_prompts()[1], options)).value());
    options.speculate = "tree:4";
    drafted.push_back(std::move(engine.request(demo_prompts()[1], options)).value());
  }
  std::vector<std::vector<int32_t>> a(plain.size()), b(plain.size());
  engine.run_together(plain, 12, [&](size_t i, Result<Answer> answer) { a[i] = answer->token_ids; });
  engine.run_together(drafted, 12, [&](size_t i, Result<Answer> answer) { b[i] = answer->token_ids; });
  EXPECT_EQ(a, b);
  std::sort(a.begin(), a.end());
  EXPECT_GT(std::unique(a.begin(), a.end()) - a.begin(), 50) << "it has turned greedy";
}

// A drafter's model with something done to its calls.
class Altered : public Model {
 public:
  using Change = std::function<Status(const Call& call)>;  // after the call
  Altered(std::unique_ptr<Model> inner, Change change) : inner_(std::move(inner)), change_(std::move(change)) {}
  const Program& program() const override { return inner_->program(); }
  Result<std::unique_ptr<State>> make_state() override { return inner_->make_state(); }
  Result<Ticket> submit(const Call& call) override {
    call_ = call;
    return inner_->submit(call);
  }
  Result<CallStats> wait(Ticket ticket) override {
    auto stats = inner_->wait(ticket);
    if (!stats.ok()) return stats;
    if (Status changed = change_(call_); !changed.ok()) return changed;
    return stats;
  }

 private:
  std::unique_ptr<Model> inner_;
  Change change_;
  Call call_;
};

Engine demo_with(Altered::Change change) {
  Engine engine = open(kDemo);
  auto& model = engine.impl()->drafting->drafter()->model;
  model = std::make_unique<Altered>(std::move(model), std::move(change));
  return engine;
}

bool mentions(const Answer& answer, const std::string& words) {
  return std::any_of(answer.warnings.begin(), answer.warnings.end(), [&](const std::string& w) { return w.find(words) != std::string::npos; });
}

TEST(SpeculationEngine, a_drafter_that_fails_is_left_out_with_a_warning_and_the_text_goes_on) {
  for (int fails_at : {1, 2, 3, 6}) {
    int call = 0;
    const Engine engine = demo_with([&](const Call&) {
      return ++call == fails_at ? Status(Code::out_of_memory, "the system refused 7 bytes") : Status();
    });
    const Answer plain = ask(engine, demo_prompts()[1], demo_options()[0], "off");
    Answer drafted = ask(engine, demo_prompts()[1], demo_options()[0], "tree:16");
    EXPECT_TRUE(mentions(drafted, "the drafter was left out: the system refused 7 bytes")) << fails_at;
    drafted.warnings = plain.warnings;
    EXPECT_EQ(text_of(engine, drafted), text_of(engine, plain)) << fails_at;
  }
}

GenerateOptions long_answer(const Engine& engine, int64_t tokens) {
  GenerateOptions options = demo_options()[0];
  options.max_tokens = tokens;
  for (const int32_t id : engine.impl()->end_ids) options.logit_bias.emplace_back(id, -1000.0f);
  return options;
}

TEST(SpeculationEngine, L43_a_drafter_that_is_hardly_ever_right_raises_a_warning) {
  const Engine engine = demo_with([](const Call& call) {
    if (call.function.role != Role::block) return Status();
    std::rotate(call.out->logits.begin(), call.out->logits.begin() + 1000, call.out->logits.end());
    for (float& x : call.out->logits) x *= 3;  // sure of itself: else the noise that it draws with, the target's own, makes it right now and then
    return Status();
  });
  GenerateOptions options = long_answer(engine, 500);
  options.temperature = 0.9;  // a text that hardly repeats itself: n-grams stay out of it
  const Answer plain = ask(engine, demo_prompts()[1], options, "off");
  const Answer drafted = ask(engine, demo_prompts()[1], options, "tree:4");
  EXPECT_EQ(drafted.token_ids, plain.token_ids);
  EXPECT_TRUE(mentions(drafted, "it may belong to another model"));
  const Answer good = ask(demo(), demo_prompts()[1], options, "tree:4");
  EXPECT_EQ(good.token_ids, plain.token_ids);
  EXPECT_FALSE(mentions(good, "another model"));
}

TEST(SpeculationEngine, L43_a_drafter_that_is_always_right_raises_a_warning) {
  std::vector<int32_t> text;
  const Engine engine = demo_with([&](const Call& call) {
    if (call.function.role != Role::block) return Status();
    const size_t vocabulary = call.out->logits.size() / call.rows.size();
    for (size_t r = 0; r < call.rows.size(); ++r) {
      const size_t next = static_cast<size_t>(call.rows[r].position) + 1;
      if (next >= text.size()) break;
      call.out->logits[r * vocabulary + static_cast<size_t>(text[next])] = 1000;
      call.out->lse[r] = 1000;
    }
    return Status();
  });
  const GenerateOptions options = long_answer(engine, 2100);
  const Answer plain = ask(engine, demo_prompts()[1], options, "off");
  text = plain.prompt_token_ids;
  text.insert(text.end(), plain.token_ids.begin(), plain.token_ids.end());
  const Answer drafted = ask(engine, demo_prompts()[1], options, "chain:1");
  EXPECT_EQ(drafted.token_ids, plain.token_ids);
  EXPECT_TRUE(mentions(drafted, "check its tap layers"));
}

}  // namespace
}  // namespace espalier::test
