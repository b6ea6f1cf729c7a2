// Ids against the reference: published vectors, and random Unicode strings through the Python package `tokenizers`.
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

#include "base/json.h"
#include "text/tokenizer_test_support.h"

namespace espalier::testing {
namespace {

const std::filesystem::path kVectors = std::filesystem::path(ESPALIER_SOURCE_DIR) / "tests/data/tokenizer-vectors";

std::vector<int32_t> must_encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  Result<std::vector<int32_t>> ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << (ids.ok() ? "" : ids.status().message());
  return ids.ok() ? *ids : std::vector<int32_t>{};
}

#define LOAD_OR_SKIP(name)                                               \
  std::string why;                                                       \
  const std::optional<Tokenizer> loaded = load_vocabulary(name, &why);   \
  if (!loaded) {                                                         \
    if (::testing::Test::HasFailure()) return;                           \
    GTEST_SKIP() << why;                                                 \
  }                                                                      \
  const Tokenizer& tokenizer = *loaded

// The cases of a file, each ended by a line with the separator.
std::vector<std::string> read_cases() {
  const std::string text = read_file(kVectors / "cases.inp"), separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> out;
  size_t at = 0;
  for (size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, at)) {
    out.push_back(text.substr(at, end - at));
    at = end + separator.size();
  }
  EXPECT_EQ(at, text.size());
  return out;
}

void check_vectors(const Tokenizer& tokenizer, const std::string& expected_file) {
  const std::vector<std::string> cases = read_cases();
  ASSERT_EQ(cases.size(), 46u);
  std::istringstream lines(read_file(kVectors / expected_file));
  std::string line;
  for (size_t i = 0; i < cases.size(); ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream numbers(line);
    std::vector<int32_t> expected;
    for (int32_t id; numbers >> id;) expected.push_back(id);
    EXPECT_EQ(must_encode(tokenizer, cases[i], {}), expected) << "case " << i << ": " << cases[i];
  }
}

TEST(TokenizerVectors, llama_3_gives_the_published_ids) {
  LOAD_OR_SKIP("llama3");
  check_vectors(tokenizer, "llama-bpe.out");
}

TEST(TokenizerVectors, qwen_gives_the_published_ids) {
  LOAD_OR_SKIP("qwen3");
  check_vectors(tokenizer, "qwen2.out");
}

uint64_t fnv(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325ull) {
  for (const char b : bytes) hash = (hash ^ static_cast<unsigned char>(b)) * 0x100000001b3ull;
  return hash;
}

uint64_t fnv(const std::vector<int32_t>& ids, uint64_t hash) {
  const auto put = [&](uint32_t v) {
    const char bytes[] = {static_cast<char>(v), static_cast<char>(v >> 8), static_cast<char>(v >> 16), static_cast<char>(v >> 24)};
    hash = fnv(std::string_view(bytes, 4), hash);
  };
  for (const int32_t id : ids) put(static_cast<uint32_t>(id));
  put(0xffffffffu);
  return hash;
}

std::string hex(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

void check_random_strings(const Tokenizer& tokenizer, const std::string& name) {
  const Value expected = read_json(fixture("random-" + name + ".json"));
  const RandomStrings strings;
  const Value::Array& first = expected.find("first")->as_array();
  for (size_t i = 0; i < first.size(); ++i) {
    const std::string& text = first[i].find("text")->as_string();
    ASSERT_EQ(strings.make(i), text) << "the two generators differ at string " << i;
    const Value *special = first[i].find("special"), *plain = first[i].find("plain");
    EXPECT_EQ(must_encode(tokenizer, text, {.special = true}), ids_of(*special)) << i << ": " << text;
    EXPECT_EQ(must_encode(tokenizer, text, {}), ids_of(plain == nullptr ? *special : *plain)) << i << ": " << text;
  }
  const auto count = static_cast<size_t>(expected.find("count")->as_int()), block = static_cast<size_t>(expected.find("block")->as_int());
  ASSERT_EQ(count, 10000u);
  for (size_t b = 0; b * block < count; ++b) {
    uint64_t text_hash = fnv(""), special_hash = text_hash, plain_hash = text_hash;
    for (size_t i = b * block; i < (b + 1) * block; ++i) {
      const std::string text = strings.make(i);
      text_hash = fnv("\xff", fnv(text, text_hash));
      special_hash = fnv(must_encode(tokenizer, text, {.special = true}), special_hash);
      plain_hash = fnv(must_encode(tokenizer, text, {}), plain_hash);
    }
    const auto at = [&](const char* key) { return expected.find(key)->as_array()[b].as_string(); };
    ASSERT_EQ(hex(text_hash), at("texts")) << "the two generators differ in block " << b;
    EXPECT_EQ(hex(special_hash), at("special")) << "strings " << b * block << " to " << (b + 1) * block - 1;
    EXPECT_EQ(hex(plain_hash), at("plain")) << "strings " << b * block << " to " << (b + 1) * block - 1;
  }
}

TEST(TokenizerRandom, demo_equals_the_reference_on_10000_strings) {
  LOAD_OR_SKIP("demo");
  check_random_strings(tokenizer, "demo");
}

TEST(TokenizerRandom, smollm2_from_gguf_equals_the_reference_on_10000_strings) {
  LOAD_OR_SKIP("smollm2");
  check_random_strings(tokenizer, "smollm2");
}

TEST(TokenizerRandom, llama_3_equals_the_reference_on_10000_strings) {
  LOAD_OR_SKIP("llama3");
  check_random_strings(tokenizer, "llama3");
}

TEST(TokenizerRandom, qwen_3_equals_the_reference_on_10000_strings) {
  LOAD_OR_SKIP("qwen3");
  check_random_strings(tokenizer, "qwen3");
}

// The 65,536-entry vocabulary of these cases is in no package; the demo vocabulary has its split rule and the spelling of
// its control tokens, so the texts at least go through and come back.
TEST(TokenizerVectors, lfm2_texts_survive_the_demo_vocabulary) {
  const std::string file = read_file(kVectors / "lfm2-65k.jsonl");
  LOAD_OR_SKIP("demo");
  std::istringstream lines(file);
  size_t checked = 0;
  for (std::string line; std::getline(lines, line);) {
    const Result<Value> json = parse_json(line);
    ASSERT_TRUE(json.ok());
    const Value* text = json->find("text");
    if (text == nullptr) continue;
    const auto ids = must_encode(tokenizer, text->as_string(), {.special = true});
    EXPECT_EQ(tokenizer.decode(ids, false), text->as_string());
    ++checked;
  }
  EXPECT_EQ(checked, 8u);
}

// Every supported setting of a small tokenizer.json: see tools/oracle/tokenizer_small.py.
TEST(TokenizerSmall, every_setting_equals_the_reference) {
  const Value file = read_json(fixture("small.json"));
  size_t cases = 0;
  for (const Value& entry : file.find("entries")->as_array()) {
    Value json;
    Value model = *file.find("model");
    model.set("ignore_merges", *entry.find("ignore_merges"));
    json.set("model", std::move(model));
    for (const char* key : {"normalizer", "pre_tokenizer", "added_tokens", "post_processor"}) json.set(key, *entry.find(key));
    const std::string settings = to_json(*entry.find("pre_tokenizer")) + to_json(*entry.find("added_tokens")) + to_json(*entry.find("normalizer"));
    const Result<Tokenizer> made = Tokenizer::from_json(json, Value());
    ASSERT_TRUE(made.ok()) << made.status().message();
    for (const Value& c : entry.find("cases")->as_array()) {
      const std::string& text = c.find("text")->as_string();
      const Value &special = *c.find("special"), *plain = c.find("plain"), *bos = c.find("bos");
      EXPECT_EQ(must_encode(*made, text, {.special = true}), ids_of(special)) << text << "\n" << settings;
      EXPECT_EQ(must_encode(*made, text, {}), ids_of(plain == nullptr ? special : *plain)) << text << "\n" << settings;
      EXPECT_EQ(must_encode(*made, text, {.special = true, .add_bos = true}), ids_of(bos == nullptr ? special : *bos)) << text << "\n" << settings;
      ++cases;
    }
  }
  EXPECT_GT(cases, 1000u);
}

}  // namespace
}  // namespace espalier::testing
