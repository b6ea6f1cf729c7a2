#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace espalier {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> stop;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  Result<StopStrings> made = StopStrings::create(stops);
  EXPECT_TRUE(made.ok());
  StopMatcher matcher(*made);
  Outcome out;
  for (const std::string& piece : pieces) {
    const StopMatcher::Step step = matcher.push(piece);
    out.text += step.text;
    if (step.stop) {
      out.stop = step.stop;
      return out;
    }
  }
  out.text += matcher.flush();
  return out;
}

// L23: the text ends right before the stop, wherever the pieces end.
TEST(StopStrings, are_found_across_pieces_L23) {
  const Outcome expected{"alpha ", 0};
  EXPECT_EQ(run({"beta gamma"}, {"alpha beta gamma delta"}), expected);
  EXPECT_EQ(run({"beta gamma"}, {"alpha", " beta", " gam", "ma delta"}), expected);
  EXPECT_EQ(run({"beta gamma"}, {"al", "pha b", "eta gamma"}), expected);
  const std::string text = "alpha beta gamma delta";
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(run({"beta gamma"}, bytes), expected);
}

// L24.
TEST(StopStrings, empty_ones_are_refused_L24) {
  for (const std::vector<std::string>& stops : {std::vector<std::string>{""}, {"x", ""}, {"", "x"}}) {
    const Result<StopStrings> made = StopStrings::create(stops);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().field(), "stop");
    EXPECT_NE(made.status().message().find("is empty"), std::string::npos);
  }
  EXPECT_TRUE(StopStrings::create({})->empty());
  EXPECT_EQ(run({}, {"all", " of it"}), (Outcome{"all of it", std::nullopt}));
  EXPECT_FALSE(StopStrings::create({std::string((4u << 20) + 1, 'a')}).ok());
}

TEST(StopStrings, one_that_no_text_can_hold_is_refused) {
  const Result<StopStrings> made = StopStrings::create({"x", "ab\xff"});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().field(), "stop");
  EXPECT_NE(made.status().message().find("2 of 2 is not valid UTF-8"), std::string::npos);
}

TEST(StopStrings, five_thousand_are_no_slower_L24) {
  std::vector<std::string> stops;
  for (int i = 0; i < 5000; ++i) stops.push_back(std::string(200, 'a') + std::to_string(i));
  Result<StopStrings> made = StopStrings::create(stops);
  ASSERT_TRUE(made.ok());
  StopMatcher matcher(*made);
  std::string out;
  for (int i = 0; i < 20'000; ++i) out += matcher.push("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa").text;
  EXPECT_EQ(matcher.held(), 200u);
  const StopMatcher::Step step = matcher.push("4711 and on");
  ASSERT_TRUE(step.stop.has_value());
  EXPECT_EQ(*step.stop, 4711u) << "4, 47 and 471 begin there too";
  out += step.text;
  EXPECT_EQ(out.size(), 20'000u * 30 - 200);
}

// L25: what was held back comes out at the end.
TEST(StopStrings, held_text_is_flushed_L25) {
  EXPECT_EQ(run({"\nUser:"}, {"\n", "answer", "\nUs"}), (Outcome{"\nanswer\nUs", std::nullopt}));
}

TEST(StopStrings, the_first_begin_wins_and_there_the_longest) {
  EXPECT_EQ(run({"c", "bcd"}, {"abcd"}), (Outcome{"a", 1}));
  EXPECT_EQ(run({"ab", "abc"}, {"xabc"}), (Outcome{"x", 1}));
  EXPECT_EQ(run({"abc", "ab"}, {"xabd"}), (Outcome{"x", 1}));
  EXPECT_EQ(run({"c", "bcd"}, {"ab", "c", "d"}), (Outcome{"ab", 0})) << "complete first, so the answer has ended";
  EXPECT_EQ(run({"x", "x"}, {"yx"}), (Outcome{"y", 0}));
}

TEST(StopStrings, equal_a_search_in_the_whole_text) {
  uint64_t state = 3;
  const auto next = [&] { return state = state * 6364136223846793005ull + 1442695040888963407ull, state >> 33; };
  const auto word = [&](uint64_t most) {
    std::string s;
    for (uint64_t n = 1 + next() % most; n > 0; --n) s += static_cast<char>('a' + next() % 3);
    return s;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (uint64_t n = 1 + next() % 4; n > 0; --n) stops.push_back(word(5));
    const Result<StopStrings> made = StopStrings::create(stops);
    ASSERT_TRUE(made.ok());
    StopMatcher matcher(*made);
    std::string all, out;
    for (int piece = 0; piece < 8; ++piece) {
      const std::string text = word(4);
      all += text;
      size_t first = std::string::npos, length = 0;
      for (const std::string& s : stops)
        if (const size_t at = all.find(s); at < first || (at == first && at != std::string::npos && s.size() > length)) {
          first = at;
          length = s.size();
        }
      const StopMatcher::Step step = matcher.push(text);
      out += step.text;
      ASSERT_EQ(step.stop.has_value(), first != std::string::npos);
      if (!step.stop) {
        ASSERT_EQ(out.size() + matcher.held(), all.size());
        continue;
      }
      ASSERT_EQ(out, all.substr(0, first));
      ASSERT_EQ(stops[*step.stop], all.substr(first, length));
      break;
    }
  }
}

}  // namespace
}  // namespace espalier
