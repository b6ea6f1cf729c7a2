// Agreement with a reference: what is counted, where, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "measure/fidelity.h"

namespace espalier {
namespace {

const std::string kDemo = std::string(ESPALIER_SOURCE_DIR) + "/models/demo";
const std::string kTiny = std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/models/lfm2-f32";
constexpr char kConversation[] =
    R"({"messages":[{"role":"user","content":"Find me a table for two."},{"role":"assistant","content":"In which city?"},)"
    R"({"role":"user","content":"Rome"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"find","arguments":"{\"city\":\"Rome\"}"}}]},)"
    R"({"role":"tool","tool_call_id":"a","content":"{\"total\": 1}"},{"role":"assistant","content":"There is one."}]})";

Engine open(const std::string& model, const std::string& unit = "cpu", const std::string& weights = "auto") {
  auto engine = Engine::open({.model = model, .unit = unit, .weights = weights, .threads = 1, .speculate = "off", .cache = false});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return *engine;
}

FidelityTexts texts(const Engine& engine, const std::string& text, const std::string& path, int64_t context = 4096) {
  auto read = read_fidelity_texts(text_reader(*engine.impl()), text, path, context);
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.status().message());
  return read.ok() ? *read : FidelityTexts();
}

std::string refusal(const Engine& engine, const std::string& text, const std::string& path) {
  const auto read = read_fidelity_texts(text_reader(*engine.impl()), text, path, 4096);
  return read.ok() ? "it was read" : read.status().message();
}

Fidelity measured(const Engine& model, const Engine& reference, const FidelityTexts& read, int64_t most = 0) {
  auto f = measure_fidelity(*model.impl(), *reference.impl(), read, most);
  EXPECT_TRUE(f.ok()) << (f.ok() ? "" : f.status().message());
  return f.ok() ? *f : Fidelity();
}

TEST(FidelityText, the_assistants_positions_are_those_that_ask_for_its_tokens) {
  const Engine engine = open(kDemo);
  const FidelityTexts read = texts(engine, std::string(kConversation) + "\n", "a.jsonl");
  ASSERT_EQ(read.texts.size(), 1u);
  const FidelityText& text = read.texts[0];
  ASSERT_EQ(text.assistant.size() + 1, text.ids.size());
  EXPECT_TRUE(read.notices.empty());
  std::string spoken;
  for (size_t p = 0; p < text.assistant.size(); ++p)
    if (text.assistant[p] != 0) spoken += engine.token_bytes(text.ids[p + 1]);
  EXPECT_EQ(spoken, "In which city?<|im_end|><|tool_call_start|>[find(city='Rome')]<|tool_call_end|><|im_end|>There is one.<|im_end|>");
}

TEST(FidelityText, a_long_text_ends_at_the_context_and_a_raw_one_is_cut_into_pieces) {
  const Engine engine = open(kDemo);
  const FidelityTexts read = texts(engine, kConversation, "a.jsonl", 20);
  ASSERT_EQ(read.texts.size(), 1u);
  EXPECT_EQ(read.texts[0].ids.size(), 20u);
  ASSERT_EQ(read.notices.size(), 1u);
  EXPECT_NE(read.notices[0].find("20 tokens"), std::string::npos);
  const FidelityTexts raw = texts(engine, "One two three four five six seven eight nine ten eleven twelve.", "a.txt", 8);
  ASSERT_GT(raw.texts.size(), 1u);
  for (const FidelityText& piece : raw.texts) {
    EXPECT_LE(piece.ids.size(), 8u);
    EXPECT_EQ(std::count(piece.assistant.begin(), piece.assistant.end(), 1), 0);
  }
}

TEST(FidelityText, ids_are_taken_as_they_are_and_wrong_lines_are_named) {
  const Engine engine = open(kDemo);
  const FidelityTexts read = texts(engine, "\n{\"prompt_ids\":[1,20,30],\"ids\":[40,50]}\n", "a.jsonl");
  ASSERT_EQ(read.texts.size(), 1u);
  EXPECT_EQ(read.texts[0].name, "line 2");
  EXPECT_EQ(read.texts[0].ids, (std::vector<int32_t>{1, 20, 30, 40, 50}));
  EXPECT_EQ(read.texts[0].assistant, (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_NE(refusal(engine, "{\"prompt_ids\":[1,2]}\n{\"prompt_ids\":[1,4096]}", "a.jsonl").find("a.jsonl, line 2"), std::string::npos);
  EXPECT_NE(refusal(engine, "{\"prompt_ids\":[-1,2]}", "a.jsonl").find("below 4096"), std::string::npos);
  EXPECT_NE(refusal(engine, "{\"prompt_ids\":[7]}", "a.jsonl").find("two tokens"), std::string::npos);
  EXPECT_NE(refusal(engine, "no json", "a.jsonl").find("line 1"), std::string::npos);
  EXPECT_NE(refusal(engine, "", "a.jsonl").find("expected a text"), std::string::npos);
}

TEST(Fidelity, a_model_agrees_with_itself_everywhere) {
  const Engine engine = open(kDemo);
  const Fidelity f = measured(engine, engine, texts(engine, kConversation, "a.jsonl"));
  EXPECT_GT(f.assistant.positions, 15);
  EXPECT_GT(f.all.positions, f.assistant.positions);
  EXPECT_EQ(f.assistant.percent(), 100);
  EXPECT_EQ(f.all.agree, f.all.positions);
  EXPECT_NEAR(f.all.divergence, 0, 1e-9);
  EXPECT_TRUE(f.differences.empty());
  EXPECT_EQ(&f.deciding(), &f.assistant);
}

TEST(Fidelity, coarser_weights_differ_and_each_difference_is_placed) {
  const Engine coarse = open(kDemo, "cpu", "int4"), exact = open(kDemo, "reference");
  std::string text;
  for (int i = 0; i < 20; ++i) text += "The restaurant in the centre of the city opens at noon and closes late. ";
  const FidelityTexts read = texts(coarse, text, "a.txt");
  const Fidelity f = measured(coarse, exact, read);
  EXPECT_EQ(f.assistant.positions, 0);
  EXPECT_EQ(&f.deciding(), &f.all);
  EXPECT_GT(f.all.mean_divergence(), 1e-4);
  EXPECT_LT(f.all.mean_divergence(), 1.0);
  EXPECT_GT(f.all.percent(), 50);
  EXPECT_EQ(static_cast<int64_t>(f.differences.size()), f.all.positions - f.all.agree);
  ASSERT_FALSE(f.differences.empty());
  for (const FidelityDifference& d : f.differences) {
    EXPECT_NE(d.model, d.reference);
    EXPECT_GE(d.gap, 0);
    EXPECT_GE(d.model_gap, 0);
    EXPECT_EQ(d.token, read.texts[0].ids[static_cast<size_t>(d.position)]);
  }
  int64_t positions = 0, agree = 0;
  ASSERT_GE(f.bands.size(), 2u);
  for (const FidelityBand& b : f.bands) {
    EXPECT_LE(b.all.positions, b.end - b.begin);
    positions += b.all.positions;
    agree += b.all.agree;
  }
  EXPECT_EQ(positions, f.all.positions);
  EXPECT_EQ(agree, f.all.agree);
  const Value v = fidelity_json(*coarse.impl(), f);
  EXPECT_EQ(v.find("differences")->as_array().size(), f.differences.size());
  EXPECT_NE(fidelity_text(*coarse.impl(), f, 3).find("choices differ"), std::string::npos);
}

TEST(Fidelity, it_ends_behind_the_text_that_reaches_the_wanted_positions) {
  const Engine engine = open(kDemo);
  const std::string lines = std::string(kConversation) + "\n" + kConversation + "\n" + kConversation + "\n";
  const FidelityTexts read = texts(engine, lines, "a.jsonl");
  const int64_t one = measured(engine, engine, read, 1).assistant.positions;
  EXPECT_EQ(measured(engine, engine, read, one).texts, 1);
  EXPECT_EQ(measured(engine, engine, read, one + 1).texts, 2);
  EXPECT_EQ(measured(engine, engine, read).texts, 3);
}

TEST(Fidelity, models_with_other_tokens_are_refused) {
  const Engine demo = open(kDemo), tiny = open(kTiny);
  const auto f = measure_fidelity(*demo.impl(), *tiny.impl(), texts(demo, "One two three four.", "a.txt"), 0);
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.status().message().find("tokens"), std::string::npos) << f.status().message();
}

TEST(Fidelity, a_callers_no_ends_it) {
  const Engine engine = open(kDemo);
  const auto f = measure_fidelity(*engine.impl(), *engine.impl(), texts(engine, kConversation, "a.jsonl"), 0, [](int64_t, int64_t) { return false; });
  ASSERT_FALSE(f.ok());
  EXPECT_EQ(f.status().code(), Code::cancelled);
}

}  // namespace
}  // namespace espalier
