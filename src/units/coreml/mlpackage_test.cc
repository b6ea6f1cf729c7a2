// The bytes of a small package: one set of weights, the same for the same program. Whether coremltools can read packages is coreml_test's.
#include "units/coreml/mlpackage.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lower/test_program.h"
#include "weights/test_files.h"

namespace espalier::coreml {
namespace {

using test::lowered;
using test::one_layer;
using test::weights_of;

const char* const kWeights = "Data/com.apple.CoreML/weights/weight.bin";
const char* const kModel = "Data/com.apple.CoreML/model.mlmodel";

template <typename T>
T at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TEST(MlPackage, weights_lie_in_the_file_once_each_behind_its_record) {
  const Program program = one_layer();
  const LoweredProgram two = lowered(program, {64, 96});
  const test::TempFolder folder;
  const Status written = write_mlpackage(two, program, weights_of(program), folder.path());
  ASSERT_TRUE(written.ok()) << written.message();
  const std::string file = test::read_file(folder / kWeights);
  ASSERT_EQ(at<uint32_t>(file, 0), two.weights.size());
  EXPECT_EQ(at<uint32_t>(file, 4), 2u);
  size_t record = 64;
  for (const LoweredWeight& w : two.weights) {
    const bool is_int8 = w.type == ScalarType::i8;
    ASSERT_LE(record + 64, file.size()) << w.name;
    EXPECT_EQ(at<uint32_t>(file, record), 0xDEADBEEFu) << w.name;
    EXPECT_EQ(at<uint32_t>(file, record + 4), is_int8 ? 4u : 1u) << w.name;
    const uint64_t bytes = at<uint64_t>(file, record + 8);
    EXPECT_EQ(bytes, static_cast<uint64_t>(elements(w.shape)) * (is_int8 ? 1 : 2)) << w.name;
    EXPECT_EQ(at<uint64_t>(file, record + 16), record + 64) << w.name;
    record = (record + 64 + bytes + 63) / 64 * 64;
  }
  EXPECT_EQ(record, file.size());
}

TEST(MlPackage, the_same_program_gives_the_same_bytes) {
  const Program program = one_layer();
  const test::TempFolder one, again, half;
  for (const test::TempFolder* folder : {&one, &again}) ASSERT_TRUE(write_mlpackage(lowered(program, {64, 96}), program, weights_of(program), folder->path()).ok());
  for (const char* path : {"Manifest.json", kModel, kWeights}) EXPECT_EQ(test::read_file(one / path), test::read_file(again / path)) << path;
  // Another bucket is another function over the same file of weights.
  ASSERT_TRUE(write_mlpackage(lowered(program, {64}), program, weights_of(program), half.path()).ok());
  EXPECT_EQ(test::read_file(half / kWeights), test::read_file(one / kWeights));
  EXPECT_LT(test::read_file(half / kModel).size(), test::read_file(one / kModel).size());
  EXPECT_NE(test::read_file(one / kModel).find("step_32_96_none"), std::string::npos);
  EXPECT_EQ(test::read_file(half / kModel).find("step_32_96_none"), std::string::npos);
}

TEST(MlPackage, what_cannot_be_written_is_refused_in_words) {
  const Program program = one_layer();
  const test::TempFolder folder;
  const Status none = write_mlpackage(lowered(program, {}), program, weights_of(program), folder.path());
  EXPECT_NE(none.message().find("no function that gives anything"), std::string::npos) << none.message();
  EXPECT_FALSE(write_mlpackage(lowered(program, {64}), program, WeightSet(), folder.path()).ok());
  const std::string taken = folder.write("file", "x");
  const Status status = write_mlpackage(lowered(program, {64}), program, weights_of(program), taken);
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_NE(status.message().find(taken), std::string::npos) << status.message();
}

}  // namespace
}  // namespace espalier::coreml
