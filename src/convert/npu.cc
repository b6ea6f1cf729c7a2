#include "convert/npu.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/half.h"
#include "lower/bind.h"
#include "weights/container.h"

namespace espalier {
namespace {

constexpr size_t kRowsAtOnce = 256;
constexpr uint64_t kWordsMax = 320;  // of one weight in the metadata, with quotes

// The exponent of each part of a weight's rows.
std::vector<int32_t> weight_exponents(const NpuScales* scales, size_t weight) {
  std::vector<int32_t> out;
  if (scales != nullptr)
    for (const ExponentSum& e : scales->scaling.weights[weight]) out.push_back(e.at(scales->exponents));
  if (out.empty()) out.push_back(0);
  return out;
}

std::vector<float> scaled_vector(const WeightSet::Entry& entry, const std::vector<int32_t>& exponents) {
  std::vector<float> out = entry.vector;
  for (size_t i = 0; i < out.size(); ++i) out[i] = std::ldexp(out[i], exponents[i * exponents.size() / out.size()]);
  return out;
}

std::string words_of(const WeightDecl& decl, const std::vector<int32_t>& exponents) {
  std::string out = "rows " + std::to_string(decl.rows) + " inputs " + std::to_string(decl.cols) + " bits 8 scale f16 exponent ";
  for (size_t i = 0; i < exponents.size(); ++i) out += (i == 0 ? "" : ",") + std::to_string(exponents[i]);
  return out;
}

class NpuWriter {
 public:
  NpuWriter(const Program& program, const WeightSet& weights, const NpuScales* scales, ContainerWriter writer, const CalibrationProgress& progress)
      : program_(program), weights_(weights), scales_(scales), writer_(std::move(writer)), progress_(progress) {
    for (const WeightDecl& decl : program.weights)
      if (decl.kind == WeightDecl::Kind::matrix) total_ += int64_t{decl.rows} * decl.cols;
  }

  Status write() {
    for (size_t w = 0; w < program_.weights.size(); ++w) {
      const WeightSet::Entry& entry = weights_.entries[w];
      const std::vector<int32_t> exponents = weight_exponents(scales_, w);
      if (entry.matrix) {
        ESPALIER_TRY(matrix(*entry.matrix, exponents));
        continue;
      }
      const std::vector<float> values = scaled_vector(entry, exponents);
      ESPALIER_TRY(writer_.append(std::as_bytes(std::span(values))));
    }
    for (const RopeSpec& rope : program_.ropes)
      if (!rope.divisors.empty()) return writer_.append(std::as_bytes(std::span(rope.divisors)));
    return {};
  }
  Status finish(const ContainerWriter::Metadata& metadata) { return writer_.finish(metadata); }

 private:
  Status matrix(const SourceMatrix& m, const std::vector<int32_t>& exponents) {
    const size_t rows = m.rows(), cols = m.cols();
    std::vector<float> values(kRowsAtOnce * cols), codes(cols);
    std::vector<int8_t> bytes;
    std::vector<uint16_t> row_scales;
    for (size_t first = 0; first < rows; first += kRowsAtOnce) {
      const size_t n = std::min(kRowsAtOnce, rows - first);
      m.dequantize(first, n, values.data());
      bytes.clear();
      for (size_t r = 0; r < n; ++r) {
        float* row = values.data() + r * cols;
        const int32_t exponent = exponents[(first + r) * exponents.size() / rows];
        for (size_t c = 0; c < cols; ++c) row[c] = std::ldexp(row[c], exponent);
        row_scales.push_back(f32_to_f16(quantise_row(std::span<const float>(row, cols), codes)));
        for (const float code : codes) bytes.push_back(static_cast<int8_t>(code));
      }
      ESPALIER_TRY(writer_.append(std::as_bytes(std::span(bytes))));
      done_ += static_cast<int64_t>(n * cols);
      if (progress_ && !progress_(done_, total_)) return {Code::cancelled, "writing the weights was cancelled"};
    }
    return writer_.append(std::as_bytes(std::span(row_scales)));
  }

  const Program& program_;
  const WeightSet& weights_;
  const NpuScales* scales_;
  ContainerWriter writer_;
  const CalibrationProgress& progress_;
  int64_t done_ = 0, total_ = 0;
};

constexpr const char* kRopeDivisors = "rope_freqs.weight";  // a part of the program that comes from a tensor of GGUF files
std::vector<ContainerTensor> with_divisors(std::vector<ContainerTensor> tensors, const RopeSpec& rope) {
  tensors.push_back({kRopeDivisors, StorageType::f32, {rope.divisors.size()}});
  return tensors;
}

std::vector<ContainerTensor> tensors_of(const Program& program) {
  std::vector<ContainerTensor> out;
  for (const WeightDecl& decl : program.weights) {
    const uint64_t rows = static_cast<uint64_t>(decl.rows), cols = static_cast<uint64_t>(decl.cols);
    if (decl.kind != WeightDecl::Kind::matrix) {
      out.push_back({decl.name, StorageType::f32, {rows, cols}});
      continue;
    }
    out.push_back({decl.name, StorageType::i8, {rows, cols}});
    out.push_back({decl.name + kRowScaleSuffix, StorageType::f16, {rows}});
  }
  for (const RopeSpec& rope : program.ropes)
    if (!rope.divisors.empty()) return with_divisors(std::move(out), rope);
  return out;
}

// What a norm's eps is multiplied with, by the first weight of its op.
void add_norms(const Program& program, const NpuScales& scales, ContainerWriter::Metadata& metadata) {
  const Function& step = *program.find(Role::step);
  for (size_t i = 0; i < step.ops.size(); ++i) {
    const int32_t exponent = scales.scaling.norm_inputs[i].at(scales.exponents);
    if (exponent != 0) metadata.emplace_back("norm." + program.weights[static_cast<size_t>(step.ops[i].weights[0])].name, std::to_string(exponent));
  }
}

std::string exponents_text(const NpuScales& scales) {
  std::string out;
  for (size_t v = 0; v < scales.exponents.size(); ++v)
    if (scales.exponents[v] != 0) out += (out.empty() ? "" : ", ") + scales.scaling.variables[v] + " " + std::to_string(scales.exponents[v]);
  return out;
}

}  // namespace

bool NpuScales::all_zero() const {
  return std::all_of(exponents.begin(), exponents.end(), [](int32_t e) { return e == 0; });
}

Result<NpuScales> calibrate(const ModelPlan& plan, const WeightSet& weights, const CalibrationText& text, uint32_t threads, const CalibrationProgress& progress) {
  NpuScales out;
  ESPALIER_TRY(check_weights(plan.program, weights));
  ESPALIER_ASSIGN(out.scaling, find_scaling(plan.program));
  ESPALIER_ASSIGN(out.quantities, measure_ranges(plan.program, weights, out.scaling, text, threads, progress));
  for (RangedQuantity& q : weight_ranges(plan.program, weights, out.scaling)) out.quantities.push_back(std::move(q));
  out.exponents = choose_scales(out.scaling, out.quantities);
  out.text = text.name;
  for (const std::vector<int32_t>& ids : text.texts) out.positions += static_cast<int64_t>(ids.size());
  return out;
}

Status write_npu(FileLock lock, const Program& program, const WeightSet& weights, const NpuScales* scales, const std::string& identity, const CalibrationProgress& progress) {
  ESPALIER_TRY(check_weights(program, weights));
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(program_hash(program)));
  ContainerWriter::Metadata metadata = {{"format", "espalier"}, {"espalier.format", kNpuFormat}, {"espalier.for", "npu"}, {"espalier.program", hash}, {"espalier.source", identity}};
  if (scales != nullptr) {
    metadata.emplace_back("espalier.scales", exponents_text(*scales));
    add_norms(program, *scales, metadata);
  }
  uint64_t metadata_bytes = 4096 + 2 * identity.size();
  for (size_t w = 0; w < program.weights.size(); ++w) {
    const WeightDecl& decl = program.weights[w];
    metadata_bytes += 3 * (kWordsMax + decl.name.size());
    if (decl.kind == WeightDecl::Kind::matrix) metadata.emplace_back("matrix." + decl.name, words_of(decl, weight_exponents(scales, w)));
  }
  ESPALIER_ASSIGN(ContainerWriter container, ContainerWriter::create(std::move(lock), tensors_of(program), metadata_bytes));
  NpuWriter writer(program, weights, scales, std::move(container), progress);
  ESPALIER_TRY(writer.write());
  return writer.finish(metadata);
}

}  // namespace espalier
