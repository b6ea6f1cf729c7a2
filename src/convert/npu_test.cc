// Conversion for NPUs: what powers of two do to a program, how they are chosen, and the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "../../tests/foundation/tiny_models.h"
#include "convert/convert.h"
#include "convert/rounded_weights.h"
#include "lower/bind.h"
#include "units/reference/reference.h"
#include "units/static/static_unit.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using test::TinyModel;

std::vector<float> logits(Unit& unit, const Program& program, const WeightSet& weights, std::span<const int32_t> ids) {
  Result<std::unique_ptr<Model>> model = unit.compile(program, weights);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.status().message());
  const std::unique_ptr<State> state = std::move((*model)->make_state()).value();
  return test::run_chain(**model, *state, ids);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, worst = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return worst / largest;
}

// The program and its weights with the exponents applied, as floats.
struct Scaled {
  Program program;
  WeightSet weights;
};
Scaled scaled(const TinyModel& tiny, const Scaling& scaling, const std::vector<int32_t>& exponents) {
  Scaled out{tiny.plan.program, tiny.weights};
  for (size_t w = 0; w < out.program.weights.size(); ++w) {
    const WeightDecl& decl = out.program.weights[w];
    const size_t rows = static_cast<size_t>(decl.rows), cols = static_cast<size_t>(decl.cols);
    const PartExponents& parts = scaling.weights[w];
    if (parts.empty()) continue;
    WeightSet::Entry& entry = out.weights.entries[w];
    if (!entry.matrix) {
      for (size_t i = 0; i < entry.vector.size(); ++i) entry.vector[i] = std::ldexp(entry.vector[i], parts[i * parts.size() / entry.vector.size()].at(exponents));
      continue;
    }
    const auto values = std::make_shared<std::vector<float>>(rows * cols);
    entry.matrix->dequantize(0, rows, values->data());
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] = std::ldexp((*values)[i], parts[i / cols * parts.size() / rows].at(exponents));
    out.weights.owners.push_back(values);
    entry.matrix = std::move(SourceMatrix::make(TensorView{decl.name, StorageType::f32, {rows, cols}, std::as_bytes(std::span(*values))}, rows, cols)).value();
  }
  Function& step = out.program.functions[static_cast<size_t>(out.program.find(Role::step) - out.program.functions.data())];
  for (size_t i = 0; i < step.ops.size(); ++i) {
    const int32_t e = 2 * scaling.norm_inputs[i].at(exponents);
    if (auto* norm = std::get_if<RmsNormAttr>(&step.ops[i].attr)) norm->eps = std::ldexp(norm->eps, e);
    if (auto* norm = std::get_if<QkNormRopeAttr>(&step.ops[i].attr)) norm->eps = std::ldexp(norm->eps, e);
  }
  return out;
}

TEST(Scaling, any_exponents_leave_what_every_model_computes) {
  const std::unique_ptr<Unit> reference = make_reference_unit();
  for (const std::string& name : test::all_tiny_models()) {
    const TinyModel tiny = test::load_tiny(name);
    const Result<Scaling> scaling = find_scaling(tiny.plan.program);
    ASSERT_TRUE(scaling.ok()) << name << ": " << scaling.status().message();
    EXPECT_GT(scaling->variables.size(), tiny.plan.program.layer_count * 3u) << name;
    const std::vector<int32_t> ids = test::random_tokens(3, 10, tiny.plan.program.vocabulary);
    const std::vector<float> expected = logits(*reference, tiny.plan.program, tiny.weights, ids);
    test::Random random(name.size());
    for (int round = 0; round < 3; ++round) {
      std::vector<int32_t> exponents;
      for (size_t v = 0; v < scaling->variables.size(); ++v) exponents.push_back(random.below(17) - 8);
      const Scaled other = scaled(tiny, *scaling, exponents);
      EXPECT_LE(distance(logits(*reference, other.program, other.weights, ids), expected), 1e-6) << name << ", round " << round;
    }
  }
}

TEST(Scaling, each_variable_moves_something) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  const Scaling scaling = std::move(find_scaling(tiny.plan.program)).value();
  for (size_t v = 0; v < scaling.variables.size(); ++v) {
    size_t weights = 0;
    for (const PartExponents& parts : scaling.weights)
      for (const ExponentSum& e : parts) weights += e.terms().count(static_cast<int32_t>(v));
    EXPECT_GE(weights, 2u) << scaling.variables[v];  // one gives, one takes back
  }
}

// The exponents that are derived for a lowered program are those by which its values move.
TEST(Scaling, lowered_values_move_by_their_exponents) {
  for (const std::string& name : test::one_of_each_family()) {
    const TinyModel tiny = test::load_tiny(name);
    const Scaling scaling = std::move(find_scaling(tiny.plan.program)).value();
    std::vector<int32_t> exponents;
    test::Random random(11);
    for (size_t v = 0; v < scaling.variables.size(); ++v) exponents.push_back(random.below(9) - 4);
    const Scaled other = scaled(tiny, scaling, exponents);
    const CalibrationText text{{test::random_tokens(5, 30, tiny.plan.program.vocabulary)}, "random tokens"};
    const auto before = measure_ranges(tiny.plan.program, tiny.weights, scaling, text, 1, {});
    const auto after = measure_ranges(other.program, other.weights, scaling, text, 1, {});
    ASSERT_TRUE(before.ok() && after.ok());
    ASSERT_EQ(before->size(), after->size());
    for (size_t i = 0; i < before->size(); ++i) {
      const float expected = std::ldexp((*before)[i].range.largest(), (*before)[i].exponent.at(exponents));
      EXPECT_NEAR((*after)[i].range.largest(), expected, 1e-4f * expected) << name << " " << (*before)[i].op << " " << (*before)[i].what;
    }
  }
}

TEST(RangeHistogram, shares_follow_shifts) {
  RangeHistogram h;
  const float values[] = {0.0f, 1.0f, -3.0f, 1024.0f, 1e-6f, INFINITY};
  h.add(values);
  EXPECT_EQ(h.values(), 6);
  EXPECT_EQ(h.largest(), 1024.0f);
  EXPECT_EQ(h.top(), 10);
  EXPECT_EQ(h.at_least(10, 0), 1);
  EXPECT_EQ(h.at_least(10, -1), 0);
  EXPECT_EQ(h.at_least(16, 6), 1);
  EXPECT_EQ(h.below(-14, 0), 1);
  EXPECT_EQ(h.below(-14, 6), 0);
  EXPECT_EQ(h.notable(16), 3);
  EXPECT_EQ(h.notable_below(-14, -15, 16), 1);  // 1 becomes 2^-15; 1e-6 does not count beside 1024
}

TEST(ChooseScales, what_fits_stays_and_what_does_not_is_moved_as_little_as_helps) {
  Scaling scaling;
  scaling.variables = {"residual", "a", "b", "c"};
  const auto quantity = [](int32_t variable, float largest) {
    RangedQuantity q;
    q.exponent = ExponentSum::of(variable);
    for (float x = largest; x > largest / 256; x /= 2) q.range.add(x);
    return q;
  };
  const RangedQuantity quantities[] = {quantity(0, 100.0f), quantity(1, 1e6f), quantity(2, 1e-7f), quantity(3, 4000.0f)};
  const std::vector<int32_t> chosen = choose_scales(scaling, quantities);
  EXPECT_EQ(chosen[0], 0);
  EXPECT_EQ(chosen[1], -7);  // 1e6 is 2^19.9: the top octave becomes that from 2^12
  EXPECT_GE(std::ldexp(1e-7f / 256, chosen[2]), 0x1p-15f);
  EXPECT_LE(std::ldexp(1e-7f, chosen[2]), 1.0f);
  EXPECT_EQ(chosen[3], 0);
}

class NpuConvert : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "espalier-npu-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  CalibrationText text(const TinyModel& tiny) const { return {{test::random_tokens(7, 40, tiny.plan.program.vocabulary), test::random_tokens(8, 70, tiny.plan.program.vocabulary)}, "random tokens"}; }
  TinyModel converted(const TinyModel& tiny, const std::string& name, bool calibrated, uint32_t threads = 1) {
    const CalibrationText calibration = text(tiny);
    const Result<Value> report = convert_for_npu(*tiny.checkpoint, tiny.plan, calibrated ? &calibration : nullptr, (folder_ / name).string(), threads, {});
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.status().message());
    return test::load_model((folder_ / name).string());
  }
  static std::string bytes(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream out;
    out << file.rdbuf();
    return out.str();
  }
  fs::path folder_;
};

TEST_F(NpuConvert, every_model_comes_back_with_int8_rows_and_stays_near_its_source) {
  const std::unique_ptr<Unit> reference = make_reference_unit();
  for (const std::string& name : test::all_tiny_models()) {
    const TinyModel tiny = test::load_tiny(name);
    for (const bool calibrated : {false, true}) {
      const TinyModel npu = converted(tiny, name + (calibrated ? "-calibrated" : "-plain"), calibrated);
      ASSERT_NE(npu.checkpoint, nullptr) << name;
      EXPECT_EQ(npu.checkpoint->kind(), CheckpointKind::npu);
      const std::vector<int32_t> ids = test::random_tokens(3, 10, tiny.plan.program.vocabulary);
      EXPECT_LE(distance(logits(*reference, npu.plan.program, npu.weights, ids), logits(*reference, tiny.plan.program, tiny.weights, ids)), 0.06) << name;
    }
  }
}

TEST_F(NpuConvert, the_same_input_gives_the_same_bytes_with_any_threads) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  converted(tiny, "a", true, 1);
  converted(tiny, "b", true, 3);
  for (const char* file : {"model.espalier", "npu-report.json", "config.json"}) {
    EXPECT_FALSE(bytes(folder_ / "a" / file).empty()) << file;
    EXPECT_EQ(bytes(folder_ / "a" / file), bytes(folder_ / "b" / file)) << file;
  }
}

TEST_F(NpuConvert, binding_it_again_gives_the_codes_that_are_stored) {
  const TinyModel npu = converted(test::load_tiny("lfm2-f32"), "a", true);
  LowerOptions options;
  options.weights = ScalarType::i8;
  options.functions = {{}};
  const LoweredProgram lowered = std::move(lower(npu.plan.program, options)).value();
  const LoweredTensors tensors = std::move(bind_lowered(lowered, npu.plan.program, npu.weights, false)).value();
  size_t compared = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const LoweredWeight& w = lowered.weights[i];
    if (w.type != ScalarType::i8) continue;
    const WeightDecl& decl = npu.plan.program.weights[static_cast<size_t>(w.source)];
    const TensorView* stored = npu.checkpoint->find(decl.name);
    ASSERT_NE(stored, nullptr);
    ASSERT_EQ(stored->type, StorageType::i8);
    const auto* codes = reinterpret_cast<const int8_t*>(stored->data.data()) + static_cast<size_t>(w.first) * static_cast<size_t>(decl.cols);
    for (size_t c = 0; c < tensors[i].size(); ++c) ASSERT_EQ(static_cast<int>(tensors[i][c]), codes[c]) << decl.name << " " << c;
    compared += tensors[i].size();
  }
  EXPECT_GT(compared, 1000u);
}

TEST_F(NpuConvert, states_of_scaled_weights_are_not_taken_for_the_sources) {
  // Values that fp16 does not hold, so that scales are needed.
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  const Scaling scaling = std::move(find_scaling(tiny.plan.program)).value();
  NpuScales scales{scaling, std::vector<int32_t>(scaling.variables.size()), {}, "by hand", 0};
  EXPECT_TRUE(scales.all_zero());
  scales.exponents[0] = 3;
  fs::create_directories(folder_ / "a");
  for (const auto& file : fs::directory_iterator(tiny.path))
    if (file.path().extension() == ".json") fs::copy(file.path(), folder_ / "a");
  FileLock lock = std::move(FileLock::acquire((folder_ / "a" / "model.espalier").string())).value();
  ASSERT_TRUE(write_npu(std::move(lock), tiny.plan.program, tiny.weights, &scales, "{}", {}).ok());
  const TinyModel npu = test::load_model((folder_ / "a").string());
  EXPECT_NE(program_hash(npu.plan.program), program_hash(tiny.plan.program));
  EXPECT_NE(npu.plan.program.family.find("residual 3"), std::string::npos);
  EXPECT_NE(npu.plan.program.family.find("embedding or head scaled"), std::string::npos);
  const std::vector<int32_t> ids = test::random_tokens(3, 10, tiny.plan.program.vocabulary);
  const std::unique_ptr<Unit> reference = make_reference_unit();
  EXPECT_LE(distance(logits(*reference, npu.plan.program, npu.weights, ids), logits(*reference, tiny.plan.program, tiny.weights, ids)), 0.06);
}

TEST_F(NpuConvert, a_converted_folder_is_not_converted_again_and_damage_is_found) {
  const TinyModel npu = converted(test::load_tiny("lfm2-f32"), "a", false);
  const Result<Value> again = convert_for_npu(*npu.checkpoint, npu.plan, nullptr, (folder_ / "b").string(), 1, {});
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find("converted already"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "b"));
  EXPECT_TRUE(verify_converted(*npu.checkpoint).ok());
  std::string damaged = bytes(folder_ / "a" / "model.espalier");
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  fs::remove(folder_ / "a" / "model.espalier");
  std::ofstream(folder_ / "a" / "model.espalier", std::ios::binary) << damaged;
  const Checkpoint reopened = std::move(Checkpoint::open((folder_ / "a").string())).value();
  EXPECT_FALSE(verify_converted(reopened).ok());
}

// A copy of a converted folder whose container is written anew after `change`.
struct Rewritten {
  std::vector<TensorView> tensors;
  ContainerWriter::Metadata metadata;
};
std::string refusal_of_changed(const fs::path& from, const fs::path& to, const std::function<void(Rewritten&)>& change) {
  fs::create_directories(to);
  fs::copy(from / "config.json", to, fs::copy_options::overwrite_existing);
  const FileMap map = std::move(FileMap::open((from / "model.espalier").string())).value();
  Container container = std::move(parse_container(map.bytes())).value();
  Rewritten r{std::move(container.tensors), std::move(container.metadata)};
  change(r);
  std::vector<ContainerTensor> declared;
  for (const TensorView& t : r.tensors) declared.push_back({t.name, t.type, t.shape});
  fs::remove(to / "model.espalier");
  ContainerWriter writer = std::move(ContainerWriter::create(std::move(FileLock::acquire((to / "model.espalier").string())).value(), declared, 1 << 16)).value();
  for (const TensorView& t : r.tensors) EXPECT_TRUE(writer.append(t.data).ok());
  EXPECT_TRUE(writer.finish(r.metadata).ok());
  const Result<Checkpoint> checkpoint = Checkpoint::open(to.string());
  if (!checkpoint.ok()) return checkpoint.status().message();
  const Result<ModelPlan> plan = plan_model(*checkpoint);
  if (!plan.ok()) return plan.status().message();
  const Result<WeightSet> weights = bind_weights(*plan, *checkpoint);
  return weights.ok() ? "" : weights.status().message();
}

TEST_F(NpuConvert, containers_that_do_not_hold_together_are_refused_by_name) {
  converted(test::load_tiny("lfm2-f32"), "a", false);
  const std::string matrix = "model.layers.0.feed_forward.w1.weight", norm = "model.layers.0.ffn_norm.weight";
  const auto says = [&](const std::function<void(Rewritten&)>& change) { return refusal_of_changed(folder_ / "a", folder_ / "b", change); };
  const auto tensor = [](Rewritten& r, const std::string& name) { return std::find_if(r.tensors.begin(), r.tensors.end(), [&](const TensorView& t) { return t.name == name; }); };
  const auto set = [](Rewritten& r, const std::string& key, const std::string& value) {
    std::erase_if(r.metadata, [&](const auto& m) { return m.first == key; });
    r.metadata.emplace_back(key, value);
  };
  EXPECT_EQ(says([](Rewritten&) {}), "");
  EXPECT_NE(says([&](Rewritten& r) { r.tensors.erase(tensor(r, matrix + ".scale")); }).find(matrix + ".scale is missing"), std::string::npos);
  EXPECT_NE(says([&](Rewritten& r) { r.tensors.erase(tensor(r, matrix)); }).find(matrix), std::string::npos);
  EXPECT_NE(says([&](Rewritten& r) { tensor(r, matrix)->type = StorageType::u8; }).find("expected"), std::string::npos);
  EXPECT_NE(says([&](Rewritten& r) { std::swap(tensor(r, "model.embed_tokens.weight")->shape[0], tensor(r, "model.embed_tokens.weight")->shape[1]); }).find("expected"), std::string::npos);
  EXPECT_NE(says([&](Rewritten& r) { tensor(r, matrix + ".scale")->type = StorageType::bf16; }).find("f16"), std::string::npos);
  EXPECT_NE(says([&](Rewritten& r) { set(r, "espalier.format", "9"); }).find("convert the model again"), std::string::npos);
  for (const char* exponent : {"61", "-61", "x", "1x", "99999999999"}) {
    const std::string refused = says([&](Rewritten& r) {
      set(r, "espalier.scales", "residual 1");
      set(r, "norm." + norm, exponent);
    });
    EXPECT_NE(refused.find("norm." + norm), std::string::npos) << exponent << ": " << refused;
  }
}

TEST_F(NpuConvert, a_text_to_measure_on_must_hold_tokens) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  const CalibrationText empty{{}, "nothing.txt"};
  const Result<Value> report = convert_for_npu(*tiny.checkpoint, tiny.plan, &empty, (folder_ / "a").string(), 1, {});
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("nothing.txt"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "a"));
}

TEST(RoundedWeights, each_form_has_the_values_that_its_name_says) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  double last = 1e9;
  for (const char* name : {"palette2", "palette4", "int4", "palette8"}) {
    const WeightSet rounded = rounded_weights(tiny.plan.program, tiny.weights, *rounded_form(name));
    double error = 0, size = 0;
    size_t most = 0;
    for (size_t w = 0; w < rounded.entries.size(); ++w) {
      if (!rounded.entries[w].matrix) continue;
      const SourceMatrix &a = *tiny.weights.entries[w].matrix, &b = *rounded.entries[w].matrix;
      std::vector<float> x(a.rows() * a.cols()), y(x.size());
      a.dequantize(0, a.rows(), x.data());
      b.dequantize(0, b.rows(), y.data());
      const bool by_row = std::string(name) == "int4";
      for (size_t first = 0; first < y.size(); first += by_row ? a.cols() : y.size())
        most = std::max(most, std::set<float>(y.begin() + static_cast<ptrdiff_t>(first), y.begin() + static_cast<ptrdiff_t>(by_row ? first + a.cols() : y.size())).size());
      for (size_t i = 0; i < x.size(); ++i) {
        error += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
        size += std::pow(static_cast<double>(x[i]), 2);
      }
    }
    const std::string form = name;
    EXPECT_LE(most, form == "palette2" ? 4u : form == "palette4" ? 16u : form == "int4" ? 15u : 256u) << form;
    EXPECT_GE(most, form == "palette2" ? 4u : 12u) << form;
    EXPECT_LT(error / size, form == "palette8" ? 1e-3 : 0.2) << form;
    if (form != "int4") {
      EXPECT_LT(error / size, last) << form;
      last = error / size;
    }
  }
  EXPECT_FALSE(rounded_form("palette3"));
}

}  // namespace
}  // namespace espalier
