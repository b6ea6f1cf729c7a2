// Whole programs in Apple's Core AI runtime against the evaluator's coreai mode: every output and every state must have the same bits.
// Needs ESPALIER_COREAI_PYTHON: tools/with-apple-python sets it.
#include <gtest/gtest.h>

#include "twin_unit.h"
#include "units/coreai/coreai_backend.h"

namespace espalier::test {
namespace {

StaticOptions options_of(ScalarType weights) {
  StaticOptions o;
#ifdef ESPALIER_FULL_WINDOWS
  o.buckets = {128, 256};
#else
  o.rows = 32;
  o.buckets = {64, 96};
#endif
  o.weights = weights;
  return o;
}

MakeBackend runtime() {
  const Result<std::string> python = coreai_python();
  if (!python.ok()) ADD_FAILURE() << python.status().message();
  return coreai_backend(python.ok() ? *python : "no-python");
}

TEST(CoreAi, the_demo_model_has_the_bits_of_the_runtime) {
  const Demo demo;
  Compared compared;
  const StaticOptions options = options_of(ScalarType::i8);
  const std::unique_ptr<Unit> unit = twin_unit(options, runtime(), Arithmetic::coreai, compared);
  const std::unique_ptr<Model> model = compiled(*unit, demo.plan.program, demo.weights);
  ASSERT_NE(model, nullptr);
  run_everything(*model, options, 11);
  EXPECT_GE(compared.runs, 8u);
  EXPECT_GE(compared.functions.size(), 4u);  // both buckets, no head, maxima and logits
  RecordProperty("runs", static_cast<int>(compared.runs));
  RecordProperty("values", static_cast<int>(compared.values));
}

TEST(CoreAi, the_demo_model_s_drafter_has_the_bits_of_the_runtime) {
  const Demo demo;
  Compared compared;
  const StaticOptions options = options_of(ScalarType::i8);
  const std::unique_ptr<Unit> unit = twin_unit(options, runtime(), Arithmetic::coreai, compared);
  const std::unique_ptr<Model> drafter = compiled(*unit, demo.drafter.model.program, demo.drafter_weights);
  ASSERT_NE(drafter, nullptr);
  draft_everything(*drafter, demo.drafter, options, 3);
  EXPECT_GE(compared.runs, 6u);
  EXPECT_GE(compared.functions.size(), 4u);  // context and block, both buckets
}

TEST(CoreAi, each_family_and_each_way_of_writing_has_the_bits_of_the_runtime) {
  run_families(options_of(ScalarType::f16), KvForm::place, [](const std::string&) { return runtime(); }, Arithmetic::coreai);
}

TEST(CoreAi, a_process_that_ends_is_an_error_that_says_so) {
  const TinyModel tiny = load_tiny(one_of_each_family()[0]);
  Result<std::unique_ptr<Unit>> unit = make_static_unit(options_of(ScalarType::f16), "static:coreai", coreai_backend("false"), true);
  ASSERT_TRUE(unit.ok());
  const Result<std::unique_ptr<Model>> model = (*unit)->compile(tiny.plan.program, tiny.weights);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("ended with exit code 1"), std::string::npos) << model.status().message();
  unit = make_static_unit(options_of(ScalarType::f16), "static:coreai", coreai_backend("no-such-program"), true);
  const Result<std::unique_ptr<Model>> none = (*unit)->compile(tiny.plan.program, tiny.weights);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("no-such-program"), std::string::npos) << none.status().message();
}

}  // namespace
}  // namespace espalier::test
