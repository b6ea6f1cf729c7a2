// Core ML packages, read back by coremltools and evaluated, against the evaluator's fp16 mode: every output and every state must have the
// same bits. Needs ESPALIER_COREML_PYTHON: tools/with-apple-python sets it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "twin_unit.h"
#include "units/coreml/mlpackage.h"
#include "units/static/process_backend.h"
#include "weights/test_files.h"

namespace espalier::test {
namespace {

StaticOptions options_of(ScalarType weights) {
  StaticOptions o;
  o.rows = 32;
  o.buckets = {64, 96};
  o.weights = weights;
  return o;
}

// Writes the package below `folder` and lets coremltools read it there.
MakeBackend reader(const std::string& folder) {
  return [folder](const LoweredProgram& lowered, const Program& program, const WeightSet& weights) -> Result<std::unique_ptr<StaticBackend>> {
    ESPALIER_TRY(coreml::write_mlpackage(lowered, program, weights, folder + "/program.mlpackage"));
    const char* python = std::getenv("ESPALIER_COREML_PYTHON");
    const std::string script = std::string(ESPALIER_SOURCE_DIR) + "/tools/mlpackage.py";
    return process_backend(lowered, "coremltools", {python == nullptr ? "no-python" : python, script, "serve", folder + "/program.mlpackage"}, folder + "/log");
  };
}

TEST(CoreMl, the_demo_model_s_package_has_the_bits_of_fp16) {
  const Demo demo;
  const TempFolder folder;
  Compared compared;
  const StaticOptions options = options_of(ScalarType::i8);
  const std::unique_ptr<Unit> unit = twin_unit(options, reader(folder.path()), Arithmetic::f16, compared);
  const std::unique_ptr<Model> model = compiled(*unit, demo.plan.program, demo.weights);
  ASSERT_NE(model, nullptr);
  run_everything(*model, options, 11);
  EXPECT_GE(compared.runs, 8u);
  EXPECT_GE(compared.functions.size(), 4u);
}

TEST(CoreMl, the_drafter_s_package_has_the_bits_of_fp16) {
  const Demo demo;
  const TempFolder folder;
  Compared compared;
  const StaticOptions options = options_of(ScalarType::i8);
  const std::unique_ptr<Unit> unit = twin_unit(options, reader(folder.path()), Arithmetic::f16, compared);
  const std::unique_ptr<Model> drafter = compiled(*unit, demo.drafter.model.program, demo.drafter_weights);
  ASSERT_NE(drafter, nullptr);
  draft_everything(*drafter, demo.drafter, options, 3);
  EXPECT_GE(compared.runs, 6u);
}

TEST(CoreMl, each_family_and_each_way_of_writing_has_the_bits_of_fp16) {
  const TempFolder folder;
  const auto reader_of = [&](const std::string& name) {
    const std::string own = folder.path() + "/" + name;
    std::filesystem::create_directory(own);
    return reader(own);
  };
  run_families(options_of(ScalarType::f16), KvForm::delta, reader_of, Arithmetic::f16);
}

}  // namespace
}  // namespace espalier::test
