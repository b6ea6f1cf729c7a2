// The demo model converted for NPUs: as it is, and from a copy whose layers do not fit fp16 (tools/rescale-model makes the same one).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/json.h"
#include "base/thread_team.h"
#include "convert/convert.h"
#include "measure/fidelity.h"
#include "units/static/static_unit.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
const std::string kSource = ESPALIER_SOURCE_DIR;
const std::string kDemo = kSource + "/models/demo";

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream out;
  out << file.rdbuf();
  return out.str();
}

std::vector<std::string> answered_prompts() {
  std::istringstream file(read(kSource + "/tests/fixtures/demo/greedy-40.jsonl"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Exponents for equal parts of a tensor's rows; those of tools/rescale-model.
std::vector<int> exponents(const std::string& name, bool large_conv) {
  constexpr int kResidual = 9, kValue = 17, kUp = 16;
  const std::vector<int> conv = large_conv ? std::vector<int>{9, 0, 9, 0} : std::vector<int>{-14, 12, -12, 14};  // b, gate, x, taps
  if (name == "model.embed_tokens.weight") return {kResidual};
  if (name == "model.embedding_norm.weight") return {-kResidual};
  if (name.ends_with(".v_proj.weight")) return {kValue};
  if (name.ends_with("self_attn.out_proj.weight")) return {kResidual - kValue};
  if (name.ends_with("conv.in_proj.weight")) return {conv[0], conv[1], conv[2]};
  if (name.ends_with("conv.conv.weight")) return {conv[3]};
  if (name.ends_with("conv.out_proj.weight")) return {kResidual - conv[0] - conv[1] - conv[2] - conv[3]};
  if (name.ends_with("w3.weight")) return {kUp};
  if (name.ends_with("w2.weight")) return {kResidual - kUp};
  return {0};
}

void scale_bf16(char* data, size_t count, int exponent) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, data + 2 * i, 2);
    if ((bits >> 7 & 0xff) != 0) bits = static_cast<uint16_t>(bits + exponent * 128);
    std::memcpy(data + 2 * i, &bits, 2);
  }
}

void rescale(const fs::path& out) {
  fs::create_directories(out);
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) fs::copy(kDemo + "/" + name, out);
  std::string data = read(kDemo + "/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, data.data(), 8);
  const Value header = std::move(parse_json(data.substr(8, length))).value();
  std::set<int> convs;
  for (const auto& [name, tensor] : header.as_object())
    if (name.ends_with("conv.in_proj.weight")) convs.insert(std::atoi(name.c_str() + std::strlen("model.layers.")));
  for (const auto& [name, tensor] : header.as_object()) {
    if (name == "__metadata__") continue;
    ASSERT_EQ(tensor.find("dtype")->as_string(), "BF16") << name;
    const int layer = name.starts_with("model.layers.") ? std::atoi(name.c_str() + std::strlen("model.layers.")) : 0;
    const std::vector<int> parts = exponents(name, std::distance(convs.begin(), convs.find(layer)) % 2 == 0);
    const Value::Array& offsets = tensor.find("data_offsets")->as_array();
    const size_t begin = 8 + length + static_cast<size_t>(offsets[0].as_int()), size = static_cast<size_t>(offsets[1].as_int() - offsets[0].as_int()) / parts.size();
    for (size_t p = 0; p < parts.size(); ++p) scale_bf16(data.data() + begin + p * size, size / 2, parts[p]);
  }
  std::ofstream(out / "model.safetensors", std::ios::binary) << data;
}

class NpuDemo : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "espalier-npu-demo-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  Engine open(const std::string& model, const std::string& unit) {
    auto engine = Engine::open({.model = model, .unit = unit, .buckets = unit == "static" ? "64,512" : "", .speculate = "off", .cache = false});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
    return *engine;
  }
  // Numbers below `flush` become zero, as on some accelerators: the engine's own static unit keeps them.
  void flush_on(Engine::Impl& engine, float flush) {
    StaticOptions options;
    options.buckets = {64, 512};
    options.weights = engine.checkpoint.kind() == CheckpointKind::npu ? ScalarType::i8 : ScalarType::f16;
    options.evaluate = {Arithmetic::f16, flush, default_thread_count()};
    engine.unit = std::move(make_static_unit(options)).value();
    engine.model = std::move(engine.unit->compile(engine.plan.program, std::move(float_weights(engine.plan, engine.checkpoint)).value())).value();
  }
  // Two prompts with their answers, a few hundred positions.
  Fidelity measured(const std::string& model, const std::string& against, float flush = 0) {
    const std::vector<std::string> lines = answered_prompts();
    const Engine a = open(model, "static"), b = open(against, "reference");
    if (flush > 0) flush_on(*a.impl(), flush);
    auto texts = read_fidelity_texts(text_reader(*a.impl()), lines[22] + "\n" + lines[31] + "\n", "a.jsonl", 512);
    EXPECT_TRUE(texts.ok());
    auto f = measure_fidelity(*a.impl(), *b.impl(), *texts, 0);
    EXPECT_TRUE(f.ok()) << (f.ok() ? "" : f.status().message());
    ranges_ = static_range_report(*a.impl()->model);
    return f.ok() ? *f : Fidelity();
  }
  // Lines of the last static unit's report that speak of overflows.
  std::string overflows() const {
    std::string out, line;
    for (std::istringstream lines(ranges_); std::getline(lines, line);)
      if (line.find(" overflows") != std::string::npos && line.find(": 0 overflows") == std::string::npos) out += line + "\n";
    return out;
  }
  Value convert(const std::string& model, const std::string& out, bool calibrated) {
    const Checkpoint checkpoint = std::move(Checkpoint::open(model)).value();
    const ModelPlan plan = std::move(plan_model(checkpoint)).value();
    const Value line = std::move(parse_json(answered_prompts()[21])).value();
    CalibrationText text{{{}}, "one prompt"};
    for (const Value& id : line.find("prompt_ids")->as_array()) text.texts[0].push_back(static_cast<int32_t>(id.as_int()));
    auto report = convert_for_npu(checkpoint, plan, calibrated ? &text : nullptr, out, default_thread_count(), {});
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.status().message());
    return report.ok() ? *report : Value();
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  fs::path folder_;
  std::string ranges_;
};

TEST_F(NpuDemo, scales_restore_a_copy_that_plain_fp16_does_not_hold) {
  rescale(path("rescaled"));
  const Fidelity plain = measured(path("rescaled"), path("rescaled"));
  EXPECT_GT(plain.all.positions, 400);
  EXPECT_LT(plain.all.percent(), 80);
  EXPECT_NE(overflows(), "");
  convert(path("rescaled"), path("uncalibrated"), false);
  EXPECT_LT(measured(path("uncalibrated"), path("rescaled")).all.percent(), 80);
  const Value report = convert(path("rescaled"), path("npu"), true);
  int64_t before = 0, after = 0;
  for (const Value& line : report.find("layers")->as_array()) {
    before += line.find("overflows_before")->as_int();
    after += line.find("overflows_after")->as_int();
  }
  EXPECT_GT(before, 1000);
  EXPECT_EQ(after, 0);
  // On text that was not measured, and with everything below fp16's normal numbers made zero.
  const Fidelity restored = measured(path("npu"), path("rescaled"), 0x1p-14f);
  EXPECT_EQ(restored.all.unanswered, 0);
  EXPECT_GE(restored.all.percent(), 98);
  EXPECT_EQ(overflows(), "");
  // The copy computes what its source does.
  EXPECT_GE(measured(path("npu"), kDemo).all.percent(), 98);
}

TEST_F(NpuDemo, int8_rows_keep_the_demo_models_choices) {
  convert(kDemo, path("npu"), true);
  const Fidelity f = measured(path("npu"), kDemo);
  EXPECT_EQ(f.all.unanswered, 0);
  EXPECT_GE(f.all.percent(), 98);
  EXPECT_GT(f.all.divergence, 0);
}

}  // namespace
}  // namespace espalier
