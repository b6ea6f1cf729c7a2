// The CPU unit against the reference unit on the same dequantised weights, for every file format and forced form: what dynamic
// int8 activations and fp16 K/V cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/thread_team.h"
#include "tiny_models.h"
#include "units/cpu/cpu_unit.h"
#include "units/reference/reference.h"

namespace espalier::test {
namespace {

struct Case {
  std::string model;
  WeightsForm form;
};

double log_sum(const float* logits, size_t n) {
  const double top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(logits[i] - top);
  return top + std::log(sum);
}

// Mean KL(reference || unit) over rows of logits.
double mean_kl(const std::vector<float>& reference, const std::vector<float>& unit, size_t vocabulary) {
  double total = 0;
  for (size_t r = 0; r < reference.size(); r += vocabulary) {
    const double a = log_sum(&reference[r], vocabulary), b = log_sum(&unit[r], vocabulary);
    for (size_t i = 0; i < vocabulary; ++i) {
      const double p = reference[r + i] - a, q = unit[r + i] - b;
      total += std::exp(p) * (p - q);
    }
  }
  return total / static_cast<double>(reference.size() / vocabulary);
}

// What the product asks of 8-bit and of 4-bit forms.
constexpr double kLimit8 = 0.003, kLimit4 = 0.01;

// Of a model on a text, both units from an empty state.
double kl_on(Model& reference, Model& unit, std::span<const int32_t> text) {
  const std::unique_ptr<State> a = std::move(reference.make_state()).value(), b = std::move(unit.make_state()).value();
  return mean_kl(run_chain(reference, *a, text), run_chain(unit, *b, text), static_cast<size_t>(reference.program().vocabulary));
}

class CpuFidelity : public testing::TestWithParam<Case> {};

TEST_P(CpuFidelity, stays_close_to_the_reference_on_the_same_weights) {
  const TinyModel tiny = load_tiny(GetParam().model);
  ThreadTeam team(1);
  Result<PackedWeights> packed = pack_weights(tiny.plan.program, tiny.weights, {GetParam().form}, team);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  Result<WeightSet> weights = dequantized(tiny.plan.program, *packed);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  bool four_bits = false;
  for (const PackedWeights::Entry& e : packed->entries) four_bits = four_bits || (e.matrix.data != nullptr && e.matrix.form.bits == 4);

  std::unique_ptr<Model> reference = std::move(make_reference_unit()->compile(tiny.plan.program, *weights)).value();
  std::unique_ptr<CpuUnit> unit = std::move(CpuUnit::make({1, KvType::f16, {}})).value();
  Result<std::unique_ptr<Model>> model = unit->compile_packed(tiny.plan.program, std::move(packed).value());
  ASSERT_TRUE(model.ok()) << model.status().message();
  // The fixture's prompt with the model's own words behind it, and random tokens.
  const Expectation expected = load_expectation(GetParam().model);
  std::vector<int32_t> text = expected.prompt;
  text.insert(text.end(), expected.greedy.begin(), expected.greedy.end());
  const double kl = std::max(kl_on(*reference, **model, text), kl_on(*reference, **model, random_tokens(21, 200, tiny.plan.program.vocabulary)));
  RecordProperty("mean_kl", std::to_string(kl));
  EXPECT_LE(kl, four_bits ? kLimit4 : kLimit8);
  EXPECT_GT(kl, 0) << "two units that agree to the bit are one unit";
}

TEST(PackWeights, file_forms_that_can_be_kept_are_exact) {
  for (const char* name : {"lfm2-gguf-q8_0", "lfm2-gguf-q4_0", "llama-gguf-q4_1", "llama-gguf-q5_1", "qwen3-gguf-q5_0", "lfm2-mlx-4bit", "lfm2-mlx-8bit-f16", "llama-mlx-2bit",
                           "llama-mlx-3bit", "qwen3-mlx-5bit", "qwen3-mlx-6bit"}) {
    const TinyModel tiny = load_tiny(name);
    ThreadTeam team(1);
    Result<PackedWeights> packed = pack_weights(tiny.plan.program, tiny.weights, {}, team);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    for (size_t i = 0; i < packed->entries.size(); ++i) {
      const PackedWeights::Entry& e = packed->entries[i];
      if (e.matrix.data == nullptr) continue;
      const SourceMatrix& source = *tiny.weights.entries[i].matrix;
      if (source.form().kind != MatrixForm::Kind::codes) continue;
      EXPECT_TRUE(e.exact) << name << " " << source.name();
      std::vector<float> expected(source.cols()), found(source.cols());
      for (uint64_t r = 0; r < source.rows(); ++r) {
        source.dequantize(r, 1, expected.data());
        embed_row(e.matrix, static_cast<uint32_t>(r), found.data());
        for (size_t c = 0; c < expected.size(); ++c) {
          // fma against product then sum: half a unit in the last place of the larger term.
          const float bound = source.form().has_offset ? 0x1p-22f * std::max(std::fabs(expected[c]), 1.0f) : 0.0f;
          ASSERT_NEAR(found[c], expected[c], bound) << name << " " << source.name() << " (" << r << ", " << c << ")";
        }
      }
    }
  }
}

TEST(PackWeights, the_file_form_is_refused_for_floats) {
  const TinyModel tiny = load_tiny("lfm2-f32");
  ThreadTeam team(1);
  Result<PackedWeights> packed = pack_weights(tiny.plan.program, tiny.weights, {WeightsForm::file}, team);
  ASSERT_FALSE(packed.ok());
  EXPECT_NE(packed.status().message().find("--weights file"), std::string::npos);
}

TEST(PackWeights, a_progress_callback_can_cancel) {
  const TinyModel tiny = load_tiny("lfm2-f32");
  ThreadTeam team(2);
  int calls = 0;
  Result<PackedWeights> packed = pack_weights(tiny.plan.program, tiny.weights, {}, team, [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    return ++calls < 3;
  });
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.status().code(), Code::cancelled);
  EXPECT_EQ(calls, 3);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& name : all_tiny_models()) out.push_back({name, WeightsForm::automatic});
  for (const std::string& name : one_of_each_family()) {
    out.push_back({name, WeightsForm::int8});
    out.push_back({name, WeightsForm::int4});
  }
  out.push_back({"lfm2-gguf-q4_0", WeightsForm::int8});
  return out;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  constexpr const char* kForms[] = {"automatic", "int8", "int4", "file"};
  std::string name = info.param.model + "_" + kForms[static_cast<int>(info.param.form)];
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Forms, CpuFidelity, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace espalier::test
