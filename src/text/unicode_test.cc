#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/unicode_nfc.h"

namespace espalier {
namespace {

TEST(Unicode, categories_cover_every_code_point_once) {
  CodeSet all;
  size_t counted = 0;
  for (const char* name : {"L", "M", "N", "P", "S", "Z", "C"}) {
    const CodeSet set = *unicode_property(name);
    for (const CodeRange& r : set.ranges()) counted += r.last - r.first + 1;
    all = all.united(set);
  }
  EXPECT_EQ(all, CodeSet({{0, kLastCodePoint}}));
  EXPECT_EQ(counted, size_t{kLastCodePoint} + 1);
}

TEST(Unicode, the_table_is_the_references) {
  EXPECT_FALSE(regex_space().contains(0x180e)) << "the Mongolian vowel separator is no space";
  EXPECT_TRUE(regex_space().contains(0x85));
  EXPECT_TRUE(regex_space().contains(0x3000));
  EXPECT_EQ(regex_space().inverted().inverted(), regex_space());
  EXPECT_TRUE(unicode_property("L")->contains(0x1c89)) << "a letter of Unicode 16 and above what Debian's PCRE2 knows";
  EXPECT_TRUE(unicode_property("Lowercase_Letter")->contains('a'));
  EXPECT_TRUE(unicode_property("decimal number")->contains('7'));
  EXPECT_TRUE(unicode_property("Han")->contains(0x4e00));
  EXPECT_FALSE(unicode_property("Klingon").has_value());
  EXPECT_TRUE(is_numeric(0xbd));
  EXPECT_TRUE(is_numeric(0x11de1));
  EXPECT_FALSE(unicode_property("N")->contains(0x11de1)) << "the digit splitter knows a later Unicode than the regexes";
  EXPECT_FALSE(is_numeric('x'));
}

TEST(Unicode, invalid_utf8_is_found_where_it_starts) {
  EXPECT_EQ(find_invalid_utf8("plain, caf\xc3\xa9, \xf0\x9f\x99\x82"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xff\xfe"), 2u);
  EXPECT_EQ(find_invalid_utf8("a\xc3"), 1u) << "cut";
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0u) << "a surrogate";
  EXPECT_EQ(find_invalid_utf8("\xc0\xaf"), 0u) << "overlong";
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0u) << "beyond U+10FFFF";
  EXPECT_EQ(find_invalid_utf8("\xc4\xe3\xba\xc3"), 0u) << "GBK";
}

TEST(Nfc, composes_and_orders_marks) {
  EXPECT_EQ(to_nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(to_nfc("A\u030a"), "\u00c5");
  EXPECT_EQ(to_nfc("\u212b"), "\u00c5");
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093c") << "excluded from composition";
  EXPECT_EQ(to_nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(to_nfc("plain ASCII, \u4e2d\u6587"), "plain ASCII, \u4e2d\u6587");
  EXPECT_EQ(to_nfc(""), "");
}

TEST(Nfc, leaves_what_the_reference_does_not_know) {
  EXPECT_EQ(to_nfc("\U00011938"), "\U00011938");
  EXPECT_EQ(to_nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(to_nfc("a\U00010efd\u0334"), "a\U00010efd\u0334") << "a mark of a later Unicode does not take part in ordering";
}

TEST(Nfc, origins_follow_the_text) {
  MarkedText text("<x>", Origin::control);
  text.append("\u0301e", Origin::data);
  text.append("\u0301<x>", Origin::control);
  const MarkedText out = to_nfc(text);
  EXPECT_EQ(out.text(), "<x>\u0301\u00e9<x>");
  EXPECT_TRUE(out.is_control(0, 3)) << "the mark behind '>' changes nothing before it";
  EXPECT_FALSE(out.is_control(3, 7)) << "a letter joined from data and control is data";
  EXPECT_TRUE(out.is_control(7, 10));
}

// Hangs where marks are put in order by insertion.
TEST(Nfc, a_long_run_of_marks_is_not_quadratic) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0316";
  const std::string out = to_nfc(text);
  EXPECT_EQ(out.size(), text.size() - 1) << "the first acute joins the a";
}

}  // namespace
}  // namespace espalier
