#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace espalier {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Result<SplitRegex> regex = SplitRegex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << (regex.ok() ? "" : regex.status().message());
  std::vector<std::string> out;
  if (!regex.ok()) return out;
  std::vector<TextSpan> spans;
  RegexBudget budget(text.size());
  const Status status = regex->find_all(text, budget, spans);
  EXPECT_TRUE(status.ok()) << status.message();
  for (const TextSpan& s : spans) out.emplace_back(text.substr(s.begin, s.end - s.begin));
  return out;
}

using Texts = std::vector<std::string>;

TEST(SplitRegex, splits_as_the_rule_of_llama_3_says) {
  EXPECT_EQ(matches(kLlama3, "I can't pay 12345 \n\n now."), (Texts{"I", " can", "'t", " pay", " ", "123", "45", " \n\n", " now", "."}));
  EXPECT_EQ(matches(kLlama3, "'\u017f 'S"), (Texts{"'\u017f", " '", "S"})) << "the long s is an s without case";
  EXPECT_EQ(matches(kLlama3, "a\u180eb"), (Texts{"a", "\u180eb"})) << "U+180E is no space";
}

TEST(SplitRegex, has_the_dialect_of_the_reference) {
  EXPECT_EQ(matches("x*", "axxb"), (Texts{"", "xx", ""}));
  EXPECT_EQ(matches("(?i:k)", "kK\u212a"), (Texts{"k", "K", "\u212a"}));
  EXPECT_EQ(matches(R"(\p{N}{1,3}+x)", "12345x"), (Texts{"12345x"})) << "an interval with + is not possessive";
  EXPECT_EQ(matches("a++b|a", "aab"), (Texts{"aab"}));
  EXPECT_EQ(matches("^.|.$", "ab\ncd"), (Texts{"a", "b", "c", "d"}));
  EXPECT_EQ(matches("a{", "a{b"), (Texts{"a{"}));
  EXPECT_EQ(matches("[]a]+", "a]b"), (Texts{"a]"}));
  EXPECT_EQ(matches("[^\\x{0}-\\x{10ffff}]|a", "ba"), (Texts{"a"})) << "an empty class matches nothing";
  EXPECT_EQ(matches("", "ab").size(), 3u);
}

TEST(SplitRegex, what_it_does_not_know_is_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(\bword)", "\\b"},
      {R"((a)\1)", "\\1"},
      {R"(\p{Klingon})", "\\p{Klingon}"},
      {"[a[b]]", "a class inside a class"},
      {R"([\w&&[^a]])", "&&"},
      {"(?<name>a)", "the group (?<n"},
      {"(?i)a", "the group (?i)"},
      {"(?i:ss)", "'ss' under (?i)"},
      {"(?i:\u00e9)", "outside ASCII under (?i)"},
      {"a{2}?", "{n}?"},
      {"a**", "a repetition of a repetition"},
      {"*a", "a repetition of nothing"},
      {"(?=a)*", "a repetition of nothing"},
      {"a{1,2000}", "more than 1000"},
      {R"(\X)", "\\X"},
      {"[\\d-z]", "a range that starts with a class"},
      {"(a", "not closed"},
      {"a)", "stands without its '('"},
      {"[a", "not closed"},
      {"\\", "ends in a backslash"},
      {R"(\x{110000})", "names no character"},
      {"(?<=a+)b", "cannot be compiled"},
      {"\xff", "not valid UTF-8"},
  };
  for (const auto& [pattern, reason] : cases) {
    const Result<SplitRegex> regex = SplitRegex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_NE(regex.status().message().find(reason), std::string::npos) << pattern << ": " << regex.status().message();
  }
  EXPECT_FALSE(SplitRegex::compile(std::string(20'000, 'a')).ok());
  EXPECT_FALSE(SplitRegex::compile(std::string(5'000, '(')).ok());
  std::string many;
  for (char32_t c = 0x4e00; c < 0x4e00 + 300; ++c) {
    many += static_cast<char>(0xe0 | c >> 12);
    many += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    many += static_cast<char>(0x80 | (c & 0x3f));
  }
  EXPECT_NE(SplitRegex::compile(many).status().message().find("256 kinds"), std::string::npos);
}

// A pattern that is hostile to its text ends in an error or in the right answer, never in a hang or in other pieces.
TEST(SplitRegex, a_hostile_pattern_ends) {
  const std::string text(20'000, 'a');
  for (const char* pattern : {"(?=.*z)a|b", "(a*)*b", "(?:a|aa)+$b", "(?:(?:a|b)*c)*d", "(?:a?a?a?){20}(?!a)z|b"}) {
    const Result<SplitRegex> regex = SplitRegex::compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status().message();
    std::vector<TextSpan> spans;
    RegexBudget budget(text.size());
    const Status status = regex->find_all(text, budget, spans);
    if (status.ok())
      EXPECT_TRUE(spans.empty()) << pattern;
    else
      EXPECT_NE(status.message().find("too m"), std::string::npos) << status.message();
  }
}

TEST(SplitRegex, a_megabyte_in_one_piece_is_linear) {
  EXPECT_EQ(matches(kLlama3, std::string(1 << 20, 'a')).size(), 1u);
  EXPECT_EQ(matches(kLlama3, std::string(1 << 20, ' ') + "x").size(), 2u);
  EXPECT_EQ(matches(kLlama3, std::string(1 << 20, '\n')).size(), 1u);
  EXPECT_EQ(matches("(?:ab|a)+", std::string(1 << 18, 'a')).size(), 1u) << "deeper than the stack of compiled matching";
}

TEST(PreTokenizer, what_it_does_not_know_is_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "Metaspace"})", "\"Metaspace\""},
      {R"({"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}]})", "\"Whitespace\""},
      {R"({"type": "Digits", "individual_digits": true})", "no ByteLevel step"},
      {R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false}, {"type": "Digits", "individual_digits": true}]})", "Digits after ByteLevel"},
      {R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Shuffled", "invert": false})", "behavior"},
      {R"({"type": "Split", "pattern": {"Glob": "a"}, "behavior": "Isolated", "invert": false})", "expected a pattern"},
      {R"({"type": "ByteLevel"})", "add_prefix_space"},
      {R"({"type": "Sequence"})", "pretokenizers"},
      {R"(17)", "expected an object"},
  };
  for (const auto& [json, reason] : cases) {
    const Result<PreTokenizer> made = PreTokenizer::parse(*parse_json(json));
    ASSERT_FALSE(made.ok()) << json;
    EXPECT_NE(made.status().message().find(reason), std::string::npos) << made.status().message();
    EXPECT_EQ(made.status().message().find('\n'), std::string::npos);
  }
  std::string deep = R"({"type": "ByteLevel", "add_prefix_space": false})";
  for (int i = 0; i < 20; ++i) deep = R"({"type": "Sequence", "pretokenizers": [)" + deep + "]}";
  EXPECT_FALSE(PreTokenizer::parse(*parse_json(deep)).ok());
}

}  // namespace
}  // namespace espalier
