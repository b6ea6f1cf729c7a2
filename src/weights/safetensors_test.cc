#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include "weights/test_files.h"

namespace espalier {
namespace {

using test::bytes_of;
using test::raw;
using test::safetensors;
using test::small_safetensors;

std::string failure(const std::string& file) {
  Result<Safetensors> parsed = parse_safetensors(bytes_of(file));
  return parsed.ok() ? "" : parsed.status().message();
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Safetensors, reads_tensors_in_the_order_of_their_bytes) {
  const std::string file = safetensors(
      R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}}   )",
      std::string("\x80\x3f\x00\x40", 4) + raw(1.5f) + raw(-2.0f));
  Result<Safetensors> parsed = parse_safetensors(bytes_of(file));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->tensors.size(), 3u);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[1].name, "e");
  EXPECT_EQ(*read_vector(parsed->tensors[0], 2), (std::vector<float>{1, 2}));
  EXPECT_EQ(*read_vector(parsed->tensors[2], 2), (std::vector<float>{1.5, -2}));
  EXPECT_EQ(parsed->metadata[0].second, "pt");
  EXPECT_EQ(parsed->header_bytes, file.size() - 12);
}

TEST(Safetensors, L04_a_cut_file_is_refused_with_expected_and_found) {
  const std::string good = small_safetensors(64);
  ASSERT_EQ(failure(good), "");
  EXPECT_SAYS(failure(good.substr(0, good.size() - 1)), "expected to end at byte 256 of the data, found only 255 bytes");
  EXPECT_SAYS(failure(good.substr(0, 7)), "at least 8 bytes, found 7 bytes");
  EXPECT_SAYS(failure(good.substr(0, good.size() / 2)), "found only");
  EXPECT_SAYS(failure(good.substr(0, 20)), "cut short");
  for (size_t cut = 0; cut < good.size(); ++cut) EXPECT_NE(failure(good.substr(0, cut)), "") << cut;
}

TEST(Safetensors, L05_spare_bytes_after_the_last_tensor_are_refused) {
  EXPECT_SAYS(failure(small_safetensors() + std::string(16, 'x')), "16 bytes are left over");
}

TEST(Safetensors, L06_a_huge_header_and_no_tensors_have_clear_sentences) {
  EXPECT_SAYS(failure(raw(uint64_t{1} << 40) + "{}"), "at most 100000000 bytes are allowed");
  EXPECT_SAYS(failure(safetensors(R"({"__metadata__":{"format":"pt"}})", "")), "no weights found");
  EXPECT_SAYS(failure(safetensors("{}", "")), "no weights found");
}

TEST(Safetensors, holes_overlaps_and_wrong_sizes_are_refused) {
  const auto two = [](const char* a, const char* b, size_t data) {
    return failure(safetensors(std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + a +
                                   R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}", std::string(data, 'x')));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "");
  EXPECT_SAYS(two("[0,4]", "[5,9]", 9), "a hole before it");
  EXPECT_SAYS(two("[1,5]", "[5,9]", 9), "a hole before it");
  EXPECT_SAYS(two("[0,4]", "[3,7]", 7), "overlaps");
  EXPECT_SAYS(two("[0,4]", "[0,4]", 4), "overlaps");
  EXPECT_SAYS(two("[0,5]", "[5,9]", 9), "needs 4 bytes");
  EXPECT_SAYS(two("[4,0]", "[4,8]", 8), "needs 4 bytes");
  EXPECT_SAYS(two("[-4,0]", "[4,8]", 8), "whole number");
  EXPECT_SAYS(two("[0.0,4]", "[4,8]", 8), "whole number");
  EXPECT_SAYS(two("[0]", "[4,8]", 8), "two data_offsets");
}

TEST(Safetensors, shapes_that_overflow_or_have_no_end_are_refused) {
  const auto shape = [](const std::string& dims) {
    return failure(safetensors(R"({"w":{"dtype":"F32","shape":[)" + dims + R"(],"data_offsets":[0,4]}})", "xxxx"));
  };
  EXPECT_EQ(shape(""), "");
  EXPECT_SAYS(shape("4611686018427387905,4"), "no size in bytes");
  EXPECT_SAYS(shape("18446744073709551615,2"), "whole number");
  EXPECT_SAYS(shape("1,1,1,1,1,1,1,1,1"), "at most 8 dimensions");
  EXPECT_SAYS(shape("-1"), "whole number");
}

TEST(Safetensors, odd_headers_are_refused) {
  EXPECT_SAYS(failure(safetensors("[]", "")), "expected an object");
  EXPECT_SAYS(failure(safetensors("{", "")), "not valid JSON");
  EXPECT_SAYS(failure(safetensors(R"({"w":5})", "")), "expected dtype");
  EXPECT_SAYS(failure(safetensors(R"({"w":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", "xxxx")), "unknown dtype \"F99\"");
  EXPECT_SAYS(failure(safetensors(R"({"__metadata__":{"a":1},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x")), "__metadata__: a");
  EXPECT_SAYS(failure(safetensors(std::string(1000, '[') , "")), "not valid JSON");
}

TEST(Safetensors, a_repeated_name_is_refused) {
  const char* entry = R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_SAYS(failure(safetensors(std::string("{") + entry + "," + entry + "}", "x")), "repeated");
  // Colons and quotes inside names are no keys.
  EXPECT_EQ(failure(safetensors(R"({"a:\"b\":{":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x")), "");
}

}  // namespace
}  // namespace espalier
