#include "text/utf8_stream.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

const std::string kMark = "\xef\xbf\xbd";

TEST(Utf8, each_maximal_ill_formed_part_is_one_mark) {
  EXPECT_EQ(replace_invalid_utf8("\xff\xfe"), kMark + kMark);
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\x99!"), kMark + "!") << "three good bytes of four are one part";
  EXPECT_EQ(replace_invalid_utf8("\xe0\x80\x80"), kMark + kMark + kMark) << "an overlong begin is no begin";
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), kMark + kMark + kMark) << "nor is a surrogate";
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), kMark + kMark + kMark + kMark);
  EXPECT_EQ(replace_invalid_utf8("\x80z\xc3"), kMark + "z" + kMark);
  EXPECT_EQ(replace_invalid_utf8("caf\xc3\xa9"), "caf\xc3\xa9");
}

// L21: an emoji in two tokens is one emoji.
TEST(Utf8Stream, never_splits_a_character_L21) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xf0\x9f"), "a");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x8a!"), "\xf0\x9f\x98\x8a!");
  EXPECT_EQ(stream.flush(Utf8Stream::Tail::replace), "");
}

// L22: a limit inside a character drops it, in one piece or in many.
TEST(Utf8Stream, drops_or_marks_an_unfinished_tail_L22) {
  const std::string text = "x\xf0\x9f\x98\x8a\xe6\xbc\xa2";
  for (size_t n = 0; n <= text.size(); ++n) {
    Utf8Stream whole, bytewise;
    std::string joined;
    for (size_t i = 0; i < n; ++i) joined += bytewise.push(std::string_view(text).substr(i, 1));
    const std::string at_once = whole.push(std::string_view(text).substr(0, n));
    EXPECT_EQ(joined, at_once);
    EXPECT_EQ(at_once.find(kMark), std::string::npos);
    EXPECT_EQ(whole.flush(Utf8Stream::Tail::drop), "");
    const bool cut = n > 0 && n < text.size() && n != 1 && n != 5;
    EXPECT_EQ(bytewise.flush(Utf8Stream::Tail::replace), cut ? kMark : "") << n;
  }
}

TEST(Utf8Stream, any_cuts_give_the_text_of_the_whole) {
  uint64_t state = 1;
  const auto next = [&] { return state = state * 6364136223846793005ull + 1442695040888963407ull, state >> 33; };
  static const unsigned char kBytes[] = {'a', 0x80, 0xbf, 0xc2, 0xc3, 0xe0, 0xa0, 0xed, 0x9f, 0xef, 0xf0, 0x90, 0xf4, 0x8f, 0xff};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (uint64_t n = next() % 20; n > 0; --n) bytes += static_cast<char>(kBytes[next() % sizeof kBytes]);
    Utf8Stream stream;
    std::string joined;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + next() % 4;
      joined += stream.push(std::string_view(bytes).substr(at, n));
      EXPECT_LE(stream.pending().size(), 3u);
      at += n;
    }
    joined += stream.flush(Utf8Stream::Tail::replace);
    ASSERT_EQ(joined, replace_invalid_utf8(bytes));
  }
}

}  // namespace
}  // namespace espalier
