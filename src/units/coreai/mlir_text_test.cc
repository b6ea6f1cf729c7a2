// The text of a small program, and that weights lie in the file once for all functions. Needs nothing of Apple's.
#include "units/coreai/mlir_text.h"

#include <gtest/gtest.h>

#include "lower/test_program.h"
#include "weights/test_files.h"

namespace espalier::coreai {
namespace {

using test::lowered;
using test::one_layer;
using test::weights_of;

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(MlirText, a_graph_names_its_states_inputs_and_outputs) {
  const std::string text = mlir_text(lowered(one_layer(), {64})).value();
  for (const char* part : {
           "module {\n  coreai.graph @step_32_64_none(%s0: !coreai.handle<tensor<1x32x1x64xf16>> {coreai.name = \"layer_0_kv_k\"}, ",
           ": tensor<1x1x96x32xf16> {coreai.name = \"mask\"}",
           "-> (!coreai.token {coreai.name = \"layer_0_kv_k\"}, !coreai.token {coreai.name = \"layer_0_kv_v\"}, tensor<1x32x1x32xf16> {coreai.name = \"layer_0\"}) {\n",
           "= \"coreai.blockwise_shift_scale\"(",
           "{value = dense_resource<\"w0\"> : tensor<32x32x1x1xsi8>} : () -> tensor<32x32x1x1xsi8> loc(unknown)\n",
           "{value = dense<\"0x0034\"> : tensor<1x1x1x1xf16>}",  // 0.25, little endian
       })
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(count(text, "\"coreai.write_handle\""), 2u);
  EXPECT_EQ(text.find("f32"), std::string::npos);
  EXPECT_TRUE(text.ends_with("  }\n}\n"));
}

TEST(MlirText, an_output_with_the_name_of_a_state_gets_another) {
  const std::string text = mlir_text(lowered(one_layer(), {64}, KvForm::delta)).value();
  EXPECT_NE(text.find("tensor<1x32x1x32xf16> {coreai.name = \"layer_0_kv_k_new\"}"), std::string::npos) << text;
  EXPECT_EQ(count(text, "\"coreai.write_handle\""), 0u);
}

TEST(MlirText, functions_share_the_weights_and_the_same_program_gives_the_same_bytes) {
  const Program program = one_layer();
  const WeightSet weights = weights_of(program);
  const test::TempFolder one, two, again;
  ASSERT_TRUE(write_program(lowered(program, {64}), program, weights, one.path()).ok());
  ASSERT_TRUE(write_program(lowered(program, {64, 96}), program, weights, two.path()).ok());
  ASSERT_TRUE(write_program(lowered(program, {64, 96}), program, weights, again.path()).ok());
  EXPECT_EQ(test::read_file(one / "weights.bin"), test::read_file(two / "weights.bin"));
  EXPECT_EQ(test::read_file(one / "weights.json"), test::read_file(two / "weights.json"));
  for (const char* file : {"program.mlir", "weights.bin", "weights.json"}) EXPECT_EQ(test::read_file(two / file), test::read_file(again / file)) << file;
  // Three matrices of codes and their scales, each at a multiple of 64.
  EXPECT_EQ(test::read_file(one / "weights.bin").size(), 3 * 1024 + 3 * 64u);
  EXPECT_TRUE(test::read_file(one / "weights.json").starts_with("{\"w0\": [0, 1024],\n \"w1\": [1024, 64],\n \"w2\""));
}

TEST(MlirText, a_folder_that_is_not_there_is_an_error) {
  const Program program = one_layer();
  const Status status = write_program(lowered(program, {64}), program, weights_of(program), "/no/such/folder");
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_NE(status.message().find("/no/such/folder/program.mlir"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace espalier::coreai
