#include "weights/gguf.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "weights/test_files.h"

namespace espalier {
namespace {

using test::bytes_of;
using test::GgufBytes;
using test::raw;

std::string failure(const std::string& file) {
  Result<Gguf> parsed = parse_gguf(bytes_of(file));
  return parsed.ok() ? "" : parsed.status().message();
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Gguf, reads_every_metadata_type_and_reverses_dimensions) {
  GgufBytes g;
  g.string("general.architecture", "test").u32("a", 7).key("b", 5, raw(int32_t{-7})).key("c", 6, raw(0.5f)).key("d", 7, raw(uint8_t{1}));
  g.key("e", 10, raw(uint64_t{1} << 40)).key("f", 12, raw(0.25)).key("g", 0, raw(uint8_t{200})).key("h", 1, raw(int8_t{-2}));
  g.key("i", 2, raw(uint16_t{60000})).key("j", 3, raw(int16_t{-5})).key("k", 11, raw(int64_t{-1}));
  g.key("l", 9, raw(uint32_t{8}) + raw(uint64_t{2}) + GgufBytes::text("x") + GgufBytes::text("yz"));
  g.key("m", 9, raw(uint32_t{9}) + raw(uint64_t{1}) + raw(uint32_t{4}) + raw(uint64_t{2}) + raw(uint32_t{1}) + raw(uint32_t{2}));
  g.tensor("w", {4, 2}, 0, 0).tensor("v", {8}, 0, 32);
  std::string data;
  for (int i = 0; i < 16; ++i) data += raw(static_cast<float>(i));
  const std::string file = g.bytes(data);
  Result<Gguf> parsed = parse_gguf(bytes_of(file));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(to_json(parsed->metadata),
            R"({"general.architecture":"test","a":7,"b":-7,"c":0.5,"d":true,"e":1099511627776,"f":0.25,"g":200,"h":-2,)"
            R"("i":60000,"j":-5,"k":-1,"l":["x","yz"],"m":[[1,2]]})");
  EXPECT_EQ(parsed->tensors[0].shape, (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(read_vector(parsed->tensors[1], 8)->at(7), 15.0f);
  for (size_t cut = 0; cut < file.size(); ++cut) EXPECT_NE(failure(file.substr(0, cut)), "") << cut;
}

TEST(Gguf, L01_a_dimension_count_beyond_the_limit_is_refused_by_tensor_name) {
  for (uint32_t dims : {9u, 5u, 0u, 4294967295u}) {
    GgufBytes g;
    g.tensor_count = 1;
    g.infos(GgufBytes::text("blk.0.bad") + raw(dims) + std::string(200, '\1'));
    const std::string message = failure(g.bytes());
    EXPECT_SAYS(message, "tensor blk.0.bad: expected 1 to 4 dimensions, found " + std::to_string(dims));
  }
}

TEST(Gguf, L02_products_that_wrap_are_refused) {
  for (std::vector<uint64_t> dims : {std::vector<uint64_t>{(uint64_t{1} << 42) + 1, 1152}, {~uint64_t{0}, 2}, {uint64_t{1} << 62, 4}, {32, uint64_t{1} << 60}}) {
    GgufBytes g;
    g.tensor("w", dims, 0, 0);
    EXPECT_SAYS(failure(g.bytes(std::string(64, '\0'))), dims[1] == 1152 ? "tensor w: expected 20266198323171840 bytes" : "more bytes than can be counted");
  }
}

TEST(Gguf, L03_lengths_beyond_the_file_cost_nothing) {
  EXPECT_SAYS(failure("GGUF" + raw(3u) + raw(uint64_t{0}) + raw(uint64_t{1}) + raw(uint64_t{1} << 30)), "expected 1073741824 bytes");
  GgufBytes alignment;
  alignment.u32("general.alignment", 1u << 30).tensor("w", {1}, 0, 0);
  EXPECT_SAYS(failure(alignment.bytes("0000")), "general.alignment: expected a power of two up to 65536, found 1073741824");
  GgufBytes odd;
  odd.u32("general.alignment", 48).tensor("w", {1}, 0, 0);
  EXPECT_SAYS(failure(odd.bytes("0000")), "found 48");
  std::string nested;
  for (int i = 0; i < 10000; ++i) nested += raw(uint32_t{9}) + raw(uint64_t{1});
  GgufBytes deep;
  deep.key("x", 9, nested);
  EXPECT_SAYS(failure(deep.bytes()), "nested more than 8 deep");
  GgufBytes wide;
  wide.key("x", 9, raw(uint32_t{8}) + raw(uint64_t{1} << 60));
  EXPECT_SAYS(failure(wide.bytes()), "does not fit");
  GgufBytes many;
  many.tensor_count = 900'000;
  EXPECT_SAYS(failure(many.bytes()), "900000 tensors");
  GgufBytes more;
  more.key_count = uint64_t{1} << 50;
  EXPECT_SAYS(failure(more.bytes()), "metadata keys");
}

TEST(Gguf, names_that_no_sentence_could_hold_are_refused) {
  EXPECT_SAYS(failure(GgufBytes().u32(std::string(1025, 'k'), 1).bytes()), "metadata key 0: a name of 1025 bytes, and at most 1024 are allowed");
  EXPECT_SAYS(failure(GgufBytes().u32("fine", 1).u32(std::string("a\0b", 3), 1).bytes()), "metadata key 1: expected a name, found control characters");
  EXPECT_SAYS(failure(GgufBytes().tensor("w\n", {8}, 0, 0).bytes(std::string(32, '\0'))), "tensor name 0: expected a name");
}

TEST(Gguf, metadata_arrays_together_are_bounded) {
  GgufBytes g;  // bytes are the densest element: 40 times their size in memory
  g.key("x", 9, raw(uint32_t{0}) + raw(uint64_t{kGgufElementsMax + 1}) + std::string(kGgufElementsMax + 1, 'a'));
  EXPECT_SAYS(failure(g.bytes()), "more than 4194304 elements together");
}

TEST(Gguf, other_versions_and_formats_are_refused_by_name) {
  const auto version = [](uint32_t v) { return failure("GGUF" + raw(v) + std::string(64, '\0')); };
  EXPECT_SAYS(version(1), "GGUF version 1 is not read");
  EXPECT_SAYS(version(2), "GGUF version 2 is not read");
  EXPECT_SAYS(version(0x03000000), "big-endian");
  EXPECT_SAYS(version(4), "GGUF version 4");
  EXPECT_SAYS(failure("lmgg" + std::string(64, '\0')), "before GGUF");
  EXPECT_SAYS(failure("PK\3\4" + std::string(64, '\0')), "expected a GGUF file");
  EXPECT_SAYS(failure(""), "GGUF magic");
}

TEST(Gguf, unknown_types_and_repeated_names_are_refused) {
  GgufBytes type;
  type.tensor("w", {32}, 99, 0);
  EXPECT_SAYS(failure(type.bytes(std::string(64, '\0'))), "tensor w: unknown GGUF tensor type 99");
  GgufBytes twice;
  twice.tensor("w", {8}, 0, 0).tensor("w", {8}, 0, 32);
  EXPECT_SAYS(failure(twice.bytes(std::string(64, '\0'))), "there twice");
  GgufBytes key;
  key.u32("a", 1).u32("a", 2);
  EXPECT_SAYS(failure(key.bytes()), "key a is repeated");
  GgufBytes value;
  value.key("a", 13, "xxxxxxxx");
  EXPECT_SAYS(failure(value.bytes()), "unknown metadata type 13");
  GgufBytes boolean;
  boolean.key("a", 7, "\2");
  EXPECT_SAYS(failure(boolean.bytes()), "expected a boolean");
}

TEST(Gguf, tensors_must_follow_one_another) {
  const auto second_at = [](uint64_t offset, size_t data) {
    GgufBytes g;
    g.tensor("a", {8}, 0, 0).tensor("b", {8}, 0, offset);
    return failure(g.bytes(std::string(data, '\0')));
  };
  EXPECT_EQ(second_at(32, 64), "");
  EXPECT_EQ(second_at(32, 96 - 32), "");
  EXPECT_SAYS(second_at(0, 64), "expected to begin at byte 32");
  EXPECT_SAYS(second_at(64, 96), "expected to begin at byte 32");
  EXPECT_SAYS(second_at(33, 96), "no multiple of 32");
  EXPECT_SAYS(second_at(32, 63), "cut short");
  EXPECT_SAYS(second_at(32, 80), "16 more bytes");
  GgufBytes padded;
  padded.tensor("a", {3}, 0, 0);
  EXPECT_EQ(failure(padded.bytes(std::string(32, '\0'))), "");
  EXPECT_EQ(failure(padded.bytes(std::string(12, '\0'))), "");
}

TEST(Gguf, rows_must_be_whole_blocks) {
  GgufBytes g;
  g.tensor("w", {48, 2}, 2, 0);
  EXPECT_SAYS(failure(g.bytes(std::string(64, '\0'))), "tensor w: (2, 48) q4_0 has rows that are no whole blocks");
}

TEST(Gguf, split_names) {
  GgufSplitName split;
  ASSERT_TRUE(parse_split_name("m-q4-00002-of-00003.gguf", &split));
  EXPECT_EQ(split.base, "m-q4");
  EXPECT_EQ(split.number, 2u);
  EXPECT_EQ(split_name(split.base, 3, split.count), "m-q4-00003-of-00003.gguf");
  for (const char* name : {"m.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-0000a-of-00003.gguf", "m-00001-of-00003.bin", "-00001-of-00003.gguf"})
    EXPECT_FALSE(parse_split_name(name, &split)) << name;
}

}  // namespace
}  // namespace espalier
