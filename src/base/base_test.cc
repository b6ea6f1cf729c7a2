#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/half.h"
#include "base/json.h"
#include "base/lines.h"
#include "base/value.h"

namespace espalier {
namespace {

TEST(Half, every_fp16_survives_a_round_trip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = f16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
      continue;
    }
    EXPECT_EQ(f32_to_f16(f), h);
  }
}

TEST(Half, fp16_rounds_ties_to_even_and_overflows_at_65520) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(0x1.8p-24f), 2);
  EXPECT_EQ(f32_to_f16(-0x1p-24f), 0x8001);
}

TEST(Half, bf16_rounds_ties_to_even) {
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Json, keeps_order_and_types_and_reads_its_own_text) {
  const char* text = R"({"b":1,"a":[1.0,2.5,-3,true,null,"x\n\u00e9"],"z":{"k":1e300}})";
  Result<Value> v = parse_json(text);
  ASSERT_TRUE(v.ok());
  EXPECT_EQ(v->as_object()[0].first, "b");
  EXPECT_TRUE(v->find("a")->as_array()[0].is_double());
  EXPECT_TRUE(v->find("b")->is_int());
  EXPECT_DOUBLE_EQ(v->find_path("z.k")->as_double(), 1e300);
  Result<Value> again = parse_json(to_json(*v));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *v);
  EXPECT_EQ(parse_json(to_json(*v, 2)).value(), *v);
}

TEST(Json, a_repeated_key_keeps_the_last_value_in_the_first_place) {
  Result<Value> v = parse_json(R"({"a":1,"b":2,"a":3})");
  ASSERT_TRUE(v.ok());
  EXPECT_EQ(to_json(*v), R"({"a":3,"b":2})");
}

TEST(Json, refuses_bad_text_with_the_place) {
  const char* bad[] = {"", "{", "[1,]", "\"\\ud800\"", "\"\xff\"", "{}x", "nul", "01", "{\"a\" 1}"};
  for (const char* text : bad) EXPECT_FALSE(parse_json(text).ok()) << text;
  EXPECT_NE(parse_json("{\n  \"a\": ?}").status().message().find("line 2"), std::string::npos);
}

TEST(Json, refuses_nesting_beyond_the_bound_without_recursion) {
  EXPECT_TRUE(parse_json(std::string(kMaxValueDepth, '[') + std::string(kMaxValueDepth, ']')).ok());
  EXPECT_FALSE(parse_json(std::string(100000, '[')).ok());
}

TEST(Json, large_integers_become_doubles) {
  EXPECT_EQ(parse_json("9223372036854775807")->as_int(), INT64_MAX);
  EXPECT_TRUE(parse_json("18446744073709551616")->is_double());
}

TEST(Lines, blank_ones_count_and_are_left_out) {
  const std::string text = "a\n \t\r\n\nb\r\nc";
  std::vector<std::pair<std::string, size_t>> found;
  for (const auto& [line, number] : record_lines(text)) found.emplace_back(line, number);
  const std::vector<std::pair<std::string, size_t>> expected = {{"a", 1}, {"b\r", 4}, {"c", 5}};
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(record_lines("").empty());
  EXPECT_TRUE(record_lines("\n\n").empty());
}

}  // namespace
}  // namespace espalier
