#include "text/bpe.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

// The 256 bytes, then one token for each merge.
BpeModel make(const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeModel model;
  int64_t id = 0;
  for (int b = 0; b < 256; ++b) EXPECT_TRUE(model.add_token(bytes_to_byte_level(std::string(1, static_cast<char>(b))), id++).ok());
  for (const auto& [l, r] : merges)
    if (model.id_of(l + r) < 0) {
      EXPECT_TRUE(model.add_token(l + r, id++).ok());
    }
  for (const auto& [l, r] : merges) EXPECT_TRUE(model.add_merge(l, r).ok());
  return model;
}

std::string spell(const BpeModel& model, std::string_view piece) {
  BpeModel::Scratch scratch;
  std::vector<int32_t> ids;
  model.encode(piece, scratch, ids);
  std::string out;
  for (const int32_t id : ids) {
    if (!out.empty()) out += '|';
    out += model.bytes(id);
  }
  return out;
}

TEST(Bpe, bytes_and_spellings_are_each_others_inverse) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  std::string back;
  ASSERT_TRUE(byte_level_to_bytes(bytes_to_byte_level(all), back));
  EXPECT_EQ(back, all);
  EXPECT_EQ(bytes_to_byte_level(" \n"), "\u0120\u010a");
  EXPECT_FALSE(byte_level_to_bytes("a b", back)) << "a space is not of the alphabet";
  EXPECT_EQ(back, all);
}

TEST(Bpe, the_lowest_rank_merges_first_and_of_equal_ones_the_leftmost) {
  const BpeModel model = make({{"b", "c"}, {"a", "b"}, {"a", "a"}});
  EXPECT_EQ(spell(model, "abc"), "a|bc");
  EXPECT_EQ(spell(model, "ab"), "ab");
  EXPECT_EQ(spell(model, "aaa"), "aa|a");
  EXPECT_EQ(spell(model, ""), "");
}

// The heap of long pieces against the scan of short ones: a long piece is one in which nothing merges across a border.
TEST(Bpe, short_and_long_pieces_merge_alike) {
  const BpeModel model = make({{"a", "b"}, {"b", "a"}, {"ab", "ab"}, {"c", "c"}, {"cc", "a"}, {"a", "a"}, {"abab", "a"}, {"b", "c"}});
  uint64_t state = 5;
  const auto next = [&] { return state = state * 6364136223846793005ull + 1442695040888963407ull, state >> 33; };
  for (int round = 0; round < 500; ++round) {
    std::string joined, expected;
    for (int part = 0; part < 12; ++part) {
      std::string piece;
      for (uint64_t n = 1 + next() % 15; n > 0; --n) piece += static_cast<char>('a' + next() % 3);
      if (!joined.empty()) expected += "|.|";
      expected += spell(model, piece);
      joined += (joined.empty() ? "" : ".") + piece;
    }
    ASSERT_EQ(spell(model, joined), expected);
  }
}

// Hangs where merging is quadratic.
TEST(Bpe, a_megabyte_of_one_letter_is_not_quadratic) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::string s = "a"; s.size() < 64; s += s) merges.emplace_back(s, s);
  const BpeModel model = make(merges);
  BpeModel::Scratch scratch;
  std::vector<int32_t> ids;
  model.encode(std::string(1 << 20, 'a'), scratch, ids);
  EXPECT_EQ(ids.size(), (1u << 20) / 64);
}

TEST(Bpe, whole_pieces_skip_the_merges) {
  BpeModel model = make({{"a", "b"}});
  ASSERT_TRUE(model.add_token("xyz", 300).ok());
  EXPECT_EQ(spell(model, "xyz"), "x|y|z");
  model.set_whole_pieces(true);
  EXPECT_EQ(spell(model, "xyz"), "xyz");
  model.forbid(300);
  EXPECT_EQ(spell(model, "xyz"), "x|y|z");
}

TEST(Bpe, a_forbidden_token_is_never_merged) {
  BpeModel model = make({{"a", "b"}, {"ab", "c"}, {"b", "c"}});
  model.forbid(model.id_of("ab"));
  EXPECT_EQ(spell(model, "abc"), "a|bc");
}

TEST(Bpe, wrong_vocabularies_are_refused_by_name) {
  BpeModel model = make({});
  EXPECT_NE(model.add_token("new", 3).message().find("has the id 3"), std::string::npos);
  EXPECT_NE(model.add_token("a", 400).message().find("twice"), std::string::npos);
  EXPECT_FALSE(model.add_token("far", int64_t{1} << 40).ok());
  EXPECT_FALSE(model.add_token("minus", -1).ok());
  EXPECT_FALSE(model.add_token("\xff", 500).ok());
  EXPECT_NE(model.add_merge("a", "b").message().find("not in the vocabulary"), std::string::npos);
}

TEST(Bpe, a_byte_without_a_token_is_left_out) {
  BpeModel model;
  ASSERT_TRUE(model.add_token("a", 0).ok());
  ASSERT_TRUE(model.add_token("b", 1).ok());
  ASSERT_TRUE(model.add_token("ab", 2).ok());
  ASSERT_TRUE(model.add_merge("a", "b").ok());
  EXPECT_FALSE(model.has_all_bytes());
  EXPECT_EQ(spell(model, "a?b"), "ab") << "as the reference: what is left stands side by side";
}

}  // namespace
}  // namespace espalier
