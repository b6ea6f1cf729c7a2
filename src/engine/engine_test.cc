// The engine on the tiny models: transformers' greedy tokens, limits, cancel, conversations, JSON.
#include "espalier/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "../../tests/foundation/tiny_models.h"
#include "base/json.h"
#include "engine/answer_json.h"
#include "engine/body.h"
#include "engine/conversation.h"
#include "engine/free_memory.h"
#include "engine/options.h"
#include "engine/prefill_pace.h"

namespace espalier {
namespace {

Engine open(const std::string& name, const std::string& unit = "reference", int64_t context = 0) {
  auto engine = Engine::open({.model = test::load_tiny(name).path, .unit = unit, .threads = 1, .context = context, .cache = false});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return *engine;
}

std::vector<int32_t> prompt_of(const std::string& name) { return test::load_expectation(name).prompt; }

GenerateOptions greedy(int64_t max_tokens) {
  GenerateOptions o;
  o.temperature = 0;
  o.max_tokens = max_tokens;
  return o;
}

Prompt of_ids(std::vector<int32_t> ids) {
  Prompt p;
  p.ids = std::move(ids);
  return p;
}
Prompt raw(const std::string& text) {
  Prompt p;
  p.raw = text;
  return p;
}

TEST(Engine, greedy_tokens_are_transformers_on_every_family_and_format) {
  int n = 0;
  for (const std::string& name : test::all_tiny_models()) {
    const test::Expectation expected = test::load_expectation(name);
    const Engine engine = open(name);
    auto request = engine.request(of_ids(expected.prompt), greedy(32));
    ASSERT_TRUE(request.ok()) << name << ": " << request.status().message();
    std::string streamed;
    auto answer = request->run({.on_delta = [&](const Delta& d) { streamed += d.text; }});
    ASSERT_TRUE(answer.ok()) << name << ": " << answer.status().message();
    EXPECT_EQ(answer->token_ids, expected.greedy) << name;
    EXPECT_EQ(answer->finish_reason, FinishReason::length) << name;
    EXPECT_EQ(streamed, answer->text) << name;
    EXPECT_EQ(answer->timings.prefill_tokens, 16);
    EXPECT_EQ(answer->timings.decode_tokens, 31);
    ++n;
  }
  EXPECT_GE(n, 25);
}

TEST(Engine, logprobs_are_those_of_the_raw_logits_whatever_the_sampling) {
  const Engine engine = open("lfm2-f32");
  const auto prompt = prompt_of("lfm2-f32"), ids = test::load_expectation("lfm2-f32").greedy;
  GenerateOptions o = greedy(8);
  o.logprobs = 3;
  auto plain = engine.request(of_ids(prompt), o)->run();
  o.logit_bias = {{ids[0], 50.0f}};  // keeps choosing that token
  auto biased = engine.request(of_ids(prompt), o)->run();
  ASSERT_TRUE(plain.ok() && biased.ok());
  ASSERT_EQ(plain->logprobs->size(), 8u);
  for (const TokenLogprob& e : *plain->logprobs) {
    ASSERT_EQ(e.top.size(), 3u);
    EXPECT_EQ(e.top[0].first, e.id);
    EXPECT_EQ(e.top[0].second, e.logprob);
    EXPECT_GE(e.top[0].second, e.top[1].second);
  }
  EXPECT_EQ(biased->token_ids, std::vector<int32_t>(8, ids[0]));
  EXPECT_EQ(biased->logprobs->at(0).logprob, plain->logprobs->at(0).logprob);
  // Scoring prompt and answer gives the same numbers.
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), plain->token_ids.begin(), plain->token_ids.end());
  auto scores = engine.score(all, 3);
  ASSERT_TRUE(scores.ok());
  ASSERT_EQ(scores->size(), all.size() - 1);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(scores->at(prompt.size() - 1 + i).logprob, plain->logprobs->at(i).logprob);
    EXPECT_EQ(scores->at(prompt.size() - 1 + i).top, plain->logprobs->at(i).top);
  }
}

TEST(Engine, a_seed_repeats_an_answer_and_another_changes_it) {
  const Engine engine = open("llama-bf16");
  GenerateOptions o;
  o.max_tokens = 24;
  o.seed = 5;
  const auto prompt = of_ids(prompt_of("llama-bf16"));
  const auto first = engine.request(prompt, o)->run()->token_ids;
  EXPECT_EQ(engine.request(prompt, o)->run()->token_ids, first);
  o.seed = 6;
  EXPECT_NE(engine.request(prompt, o)->run()->token_ids, first);
  o.seed.reset();
  const auto drawn = engine.request(prompt, o)->run();
  o.seed = drawn->seed;
  EXPECT_EQ(engine.request(prompt, o)->run()->token_ids, drawn->token_ids);
}

TEST(Engine, both_units_answer_and_the_prompt_may_come_in_any_chunks) {
  const Engine engine = open("lfm2-f32", "cpu");
  std::vector<int32_t> prompt;
  for (int i = 0; i < 300; ++i) prompt.push_back(3 + (i * 37) % 200);
  const auto all = engine.request(of_ids(prompt), greedy(12))->run();
  ASSERT_TRUE(all.ok());
  int64_t last = 0;
  const auto again = engine.request(of_ids(prompt), greedy(12))->run({.on_prefill = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 300);
    last = done;
  }});
  EXPECT_EQ(last, 300);
  EXPECT_EQ(again->token_ids, all->token_ids);
}

TEST(Engine, L22_max_tokens_inside_a_character_drops_its_part) {
  const Engine engine = open("lfm2-f32");
  for (int64_t n = 1; n <= 12; ++n) {
    std::string streamed;
    const auto answer = engine.request(raw("emoji"), greedy(n))->run({.on_delta = [&](const Delta& d) { streamed += d.text; }});
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(streamed, answer->text);
    EXPECT_EQ(static_cast<int64_t>(answer->token_ids.size()), n);
  }
}

TEST(Engine, L49_a_prompt_longer_than_the_context_names_both_numbers) {
  const Engine engine = open("lfm2-f32", "reference", 64);
  const std::vector<int32_t> prompt(200, 5);
  auto request = engine.request(of_ids(prompt), {});
  ASSERT_FALSE(request.ok());
  EXPECT_NE(request.status().message().find("200"), std::string::npos) << request.status().message();
  EXPECT_NE(request.status().message().find("64"), std::string::npos);
  EXPECT_EQ(engine.score(prompt, 0).status().code(), Code::invalid_argument);
  EXPECT_TRUE(engine.request(of_ids(std::vector<int32_t>(63, 5)), greedy(1)).ok());
  EXPECT_FALSE(engine.request(of_ids(std::vector<int32_t>(64, 5)), greedy(1)).ok());
}

TEST(Engine, L50_more_max_tokens_than_room_are_cut_with_a_warning) {
  const Engine engine = open("lfm2-f32", "reference", 40);
  auto answer = engine.request(of_ids(prompt_of("lfm2-f32")), greedy(10000))->run();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->token_ids.size(), 24u);
  ASSERT_EQ(answer->warnings.size(), 1u);
  EXPECT_NE(answer->warnings[0].find("10000"), std::string::npos);
  for (const int64_t wrong : {int64_t{0}, int64_t{-5}})
    EXPECT_EQ(engine.request(raw("a"), greedy(wrong)).status().field(), "max_tokens");
}

TEST(Engine, L23_a_stop_string_across_tokens_ends_right_before_itself) {
  const Engine engine = open("lfm2-f32");
  const auto whole = engine.request(raw("hello"), greedy(40))->run();
  ASSERT_TRUE(whole.ok());
  const std::string& text = whole->text;
  for (size_t at = 1; at + 3 <= text.size(); at += 3) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80 || text.find('\xef') != std::string::npos) continue;
    size_t length = 3;
    while (at + length < text.size() && (static_cast<unsigned char>(text[at + length]) & 0xc0) == 0x80) ++length;
    GenerateOptions o = greedy(40);
    o.stop = {text.substr(at, length), "never in any text"};
    std::string streamed;
    const auto stopped = engine.request(raw("hello"), o)->run({.on_delta = [&](const Delta& d) { streamed += d.text; }});
    ASSERT_TRUE(stopped.ok());
    EXPECT_EQ(stopped->finish_reason, FinishReason::stop);
    EXPECT_EQ(stopped->stop_text, o.stop[0]);
    EXPECT_EQ(stopped->text, text.substr(0, text.find(o.stop[0])));
    EXPECT_EQ(streamed, stopped->text);
    // The token that completed it is the last one.
    EXPECT_TRUE(std::equal(stopped->token_ids.begin(), stopped->token_ids.end(), whole->token_ids.begin()));
  }
}

TEST(Engine, L24_empty_stop_strings_are_refused_and_thousands_cost_little) {
  const Engine engine = open("lfm2-f32");
  GenerateOptions o = greedy(4);
  o.stop = {"x", ""};
  EXPECT_EQ(engine.request(raw("a"), o).status().field(), "stop");
  o.stop.clear();
  for (int i = 0; i < 5000; ++i) o.stop.push_back("no such text " + std::to_string(i));
  EXPECT_TRUE(engine.request(raw("a"), o)->run().ok());
}

TEST(Engine, L27_the_bytes_of_the_tokens_join_to_the_text) {
  const Engine engine = open("llama-bf16");
  GenerateOptions o = greedy(32);
  o.logprobs = 5;
  const auto answer = engine.request(raw("hello"), o)->run();
  std::string bytes;
  for (const TokenLogprob& e : *answer->logprobs) bytes += engine.token_bytes(e.id);
  Utf8Stream utf8;
  std::string joined = utf8.push(bytes);
  EXPECT_EQ(joined + utf8.flush(Utf8Stream::Tail::drop), answer->text);
}

TEST(Engine, cancel_from_another_thread_keeps_what_is_there) {
  const Engine engine = open("lfm2-f32");
  auto request = engine.request(raw("hello"), greedy(1000));
  ASSERT_TRUE(request.ok());
  std::atomic<bool> started{false};
  std::thread other([&] {
    while (!started.load()) std::this_thread::yield();
    request->cancel();
  });
  int64_t deltas = 0;
  const auto answer = request->run({.on_delta = [&](const Delta&) {
    ++deltas;
    started.store(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }});
  other.join();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->finish_reason, FinishReason::cancelled);
  EXPECT_FALSE(answer->token_ids.empty());
  EXPECT_LT(answer->token_ids.size(), 1000u);
  EXPECT_FALSE(request->run().ok());  // once
}

TEST(Engine, requests_on_several_threads_give_what_each_gives_alone) {
  const Engine engine = open("lfm2-f32", "cpu");
  std::vector<std::vector<int32_t>> alone, together(3);
  const auto ask = [&](size_t i) { return engine.request(raw("thread " + std::to_string(i * 7)), greedy(20))->run()->token_ids; };
  for (size_t i = 0; i < 3; ++i) alone.push_back(ask(i));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { together[i] = ask(i); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(together, alone);
}

TEST(Conversation, a_second_turn_runs_only_what_is_new_and_gives_the_same_text) {
  for (const char* unit : {"reference", "cpu"}) {
    const Engine engine = open("lfm2-f32", unit);
    auto talk = engine.conversation();
    ASSERT_TRUE(talk.ok()) << talk.status().message();
    const auto first = talk->ask("hello there", greedy(12));
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_EQ(first->timings.reused_tokens, 0);
    const auto second = talk->ask("and more", greedy(12));
    ASSERT_TRUE(second.ok());
    EXPECT_GT(second->timings.reused_tokens, 0);
    EXPECT_EQ(second->timings.prefill_tokens + second->timings.reused_tokens, static_cast<int64_t>(second->prompt_token_ids.size()));
    const auto afresh = engine.request(of_ids(second->prompt_token_ids), greedy(12))->run();
    EXPECT_EQ(afresh->token_ids, second->token_ids) << unit;
    auto again = engine.conversation();
    ASSERT_TRUE(again->ask("hello there", greedy(12)).ok());
    again->set_system("another text");
    EXPECT_EQ(again->ask("x", greedy(2))->timings.reused_tokens, 0);
  }
}

TEST(Conversation, a_cancelled_or_refused_turn_leaves_it_usable) {
  const Engine engine = open("lfm2-f32", "reference", 200);
  auto talk = engine.conversation();
  ASSERT_TRUE(talk.ok());
  ASSERT_TRUE(talk->ask("one", greedy(5)).ok());
  const std::string before = talk->messages();
  EXPECT_FALSE(talk->ask(std::string(2000, 'x'), greedy(5)).ok());
  EXPECT_EQ(talk->messages(), before);
  const auto stopped = talk->ask("two", greedy(50), {.on_delta = [&](const Delta&) { talk->cancel(); }});
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->finish_reason, FinishReason::cancelled);
  const auto next = talk->ask("three", greedy(5));
  ASSERT_TRUE(next.ok()) << next.status().message();
  const auto afresh = engine.request(of_ids(next->prompt_token_ids), greedy(5))->run();
  EXPECT_EQ(afresh->token_ids, next->token_ids);
}

TEST(Json, an_answer_has_exactly_the_keys_of_the_rules) {
  const Engine engine = open("lfm2-f32");
  GenerateOptions o = greedy(3);
  o.logprobs = 1;
  o.seed = 77;
  const auto answer = engine.request(raw("hello"), o)->run();
  const Value v = *parse_json(engine.to_json(*answer));
  std::vector<std::string> keys;
  for (const auto& [key, value] : v.as_object()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"text", "reasoning", "tool_calls", "token_ids", "prompt_token_ids", "finish_reason", "stop_text",
                                            "logprobs", "seed", "timings", "placement", "unit", "kernels", "weights", "kv", "speculation",
                                            "warnings"}));
  EXPECT_EQ(v.find("finish_reason")->as_string(), "length");
  EXPECT_TRUE(v.find("reasoning")->is_null());
  EXPECT_EQ(v.find_path("speculation.mode")->as_string(), "auto");
  EXPECT_EQ(v.find_path("speculation.cycles")->as_int(), 2);
  for (const char* key : {"mode", "cycles", "rows", "accepted", "by_depth", "by_source", "ms"})
    EXPECT_TRUE(v.find("speculation")->find(key) != nullptr) << key;
  o.speculate = "off";
  EXPECT_TRUE(parse_json(engine.to_json(*engine.request(raw("hello"), o)->run()))->find("speculation")->is_null());
  EXPECT_EQ(v.find("seed")->as_int(), 77);
  EXPECT_EQ(v.find_path("placement.decode")->as_string(), "reference");
  const Value& entry = v.find("logprobs")->as_array().at(0);
  EXPECT_EQ(entry.as_object().size(), 3u);
  EXPECT_EQ(static_cast<float>(entry.find("logprob")->as_double()), answer->logprobs->at(0).logprob);
  for (const char* key : {"load_ms", "prefill_ms", "decode_ms", "ttft_ms", "prefill_tokens", "reused_tokens", "decode_tokens"})
    EXPECT_TRUE(v.find("timings")->find(key) != nullptr) << key;
}

TEST(Body, L48_wrong_bodies_are_refused_with_the_field) {
  const auto field = [](const std::string& text) {
    const auto value = parse_json(text);
    if (!value.ok()) return std::string("not JSON");
    const auto body = read_body(*value, {});
    return body.ok() ? std::string("ok") : body.status().field();
  };
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  EXPECT_EQ(field("[]"), "messages");
  EXPECT_EQ(field("5"), "messages");
  EXPECT_EQ(field("\"x\""), "messages");
  EXPECT_EQ(field("null"), "messages");
  EXPECT_EQ(field("{"), "not JSON");
  EXPECT_EQ(field("{}"), "messages");
  EXPECT_EQ(field(R"({"messages":{}})"), "messages");
  EXPECT_EQ(field(R"({"messages":[]})"), "messages");
  EXPECT_EQ(field("{" + messages + "}"), "ok");
  for (const char* bad : {R"("temperature":"hot")", R"("top_k":1.5)", R"("stop":[1])", R"("logit_bias":[1])", R"("logit_bias":{"x":1})",
                          R"("n":2)", R"("tools":{})", R"("max_tokens":"1")", R"("seed":-1)", R"("top_logprobs":2)",
                          R"("response_format":{"type":"json_object"})", R"("tool_choice":"required")", R"("chat_template_kwargs":1)"}) {
    const std::string key = std::string(bad).substr(1, std::string(bad).find('"', 1) - 1);
    EXPECT_EQ(field("{" + messages + "," + bad + "}"), key) << bad;
  }
}

TEST(Body, known_keys_are_taken_and_unknown_ones_are_a_warning) {
  const auto value = parse_json(
      R"({"messages":[{"role":"user","content":"hi"}],"model":"m","temperature":0.5,"max_completion_tokens":9,"stop":"x","logprobs":true,
          "top_logprobs":4,"logit_bias":{"7":-1.5},"seed":3,"wings":2,"top_p":null})");
  const auto body = read_body(*value, {});
  ASSERT_TRUE(body.ok()) << body.status().message();
  EXPECT_EQ(body->options.temperature, 0.5);
  EXPECT_EQ(body->options.max_tokens, 9);
  EXPECT_EQ(body->options.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(body->options.logprobs, 4);
  EXPECT_EQ(body->options.logit_bias.at(0).second, -1.5f);
  EXPECT_EQ(body->options.seed, 3u);
  EXPECT_FALSE(body->options.top_p);
  ASSERT_EQ(body->warnings.size(), 1u);
  EXPECT_NE(body->warnings[0].find("wings"), std::string::npos);
}

TEST(Options, the_table_is_sound) {
  for (const OptionSpec& a : option_table()) {
    EXPECT_NE(a.commands, 0u) << a.name;
    EXPECT_FALSE(std::string(a.help).empty()) << a.name;
    EXPECT_EQ(a.type == OptionType::flag, std::string(a.placeholder).empty()) << a.name;
    for (const OptionSpec& b : option_table())
      if (&a != &b && std::string(a.name) == b.name) {
        EXPECT_EQ(a.commands & b.commands, 0u) << a.name;
      }
  }
  EXPECT_EQ(find_option("max_tokens", kRun), find_option("max-tokens", kRun));
  EXPECT_EQ(find_option("rows", kRun), nullptr);
  const std::vector<std::string> names = {"--temperature", "--top-k"};
  EXPECT_EQ(nearest("--temprature", names), "--temperature");
  EXPECT_EQ(nearest("--zzzzzzzzz", names), "");
}

TEST(FreeMemory, reads_what_the_system_says) {
  EXPECT_EQ(mem_available("MemTotal: 5 kB\nMemAvailable:    12 kB\n"), 12 * 1024u);
  EXPECT_FALSE(mem_available("MemTotal: 5 kB\n"));
  EXPECT_FALSE(cgroup_left("max\n", "100\n", ""));
  EXPECT_EQ(cgroup_left("1000\n", "600\n", "anon 1\ninactive_file 100\n"), 500u);
  EXPECT_EQ(cgroup_left("1000\n", "2000\n", ""), 0u);
  EXPECT_EQ(cgroup_left("1000\n", "600\n", "total_inactive_file 50\ninactive_file 9\n", "total_inactive_file"), 450u);
  const std::string groups = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/user\n";
  EXPECT_EQ(memory_group(groups, true), "/user");
  EXPECT_EQ(memory_group(groups, false), "/a/b");
  EXPECT_EQ(memory_group("4:memoryless:/a\n3:", false), std::nullopt);
}

TEST(PrefillPace, follows_the_measured_rate_between_its_bounds) {
  PrefillPace pace;
  EXPECT_EQ(pace.rows(), 64);
  pace.record(64, 1'000'000);
  EXPECT_EQ(pace.rows(), 256);
  pace.record(256, 1'000'000);
  EXPECT_EQ(pace.rows(), 512);
  pace.record(512, 2'500'000'000);
  EXPECT_EQ(pace.rows(), 48);
  pace.record(48, 250'000'000'000);
  EXPECT_EQ(pace.rows(), kPrefillRowsMin);
  pace.record(1, 1);
  EXPECT_EQ(pace.rows(), kPrefillRowsMin);
}

}  // namespace
}  // namespace espalier
