#include "lower/bind.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace espalier {
namespace {

std::vector<float> source_values(const LoweredWeight& w, const WeightDecl& decl, const WeightSet::Entry& entry) {
  const size_t rows = static_cast<size_t>(w.rows), cols = static_cast<size_t>(decl.cols), first = static_cast<size_t>(w.first);
  if (entry.matrix) {
    std::vector<float> out(rows * cols);
    entry.matrix->dequantize(first, rows, out.data());
    return out;
  }
  if (w.part != LoweredWeight::Part::column) return {entry.vector.begin() + w.first, entry.vector.begin() + w.first + w.rows};
  std::vector<float> out(rows);
  for (size_t r = 0; r < rows; ++r) out[r] = entry.vector[r * cols + first];
  return out;
}

std::vector<float> quantised(const LoweredWeight& w, size_t cols, const std::vector<float>& values) {
  const bool scales = w.part == LoweredWeight::Part::scales;
  std::vector<float> out(scales ? static_cast<size_t>(w.rows) : values.size()), codes(cols);
  for (size_t r = 0; r < static_cast<size_t>(w.rows); ++r) {
    const float scale = quantise_row(std::span(values).subspan(r * cols, cols), codes);
    if (scales) out[r] = scale;
    else std::copy(codes.begin(), codes.end(), out.begin() + static_cast<ptrdiff_t>(r * cols));
  }
  return out;
}

std::vector<float> bound(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, size_t index, bool exact) {
  const LoweredWeight& w = lowered.weights[index];
  const WeightDecl& decl = program.weights[static_cast<size_t>(w.source)];
  std::vector<float> values = source_values(w, decl, weights.entries[static_cast<size_t>(w.source)]);
  if (w.type == ScalarType::i8 || w.part == LoweredWeight::Part::scales) return quantised(w, static_cast<size_t>(decl.cols), values);
  if (!exact)
    for (float& v : values) v = f16_to_f32(f32_to_f16(v));
  return values;
}

}  // namespace

float quantise_row(std::span<const float> row, std::span<float> codes) {
  float largest = 0;
  for (const float w : row) largest = std::max(largest, std::fabs(w));
  const float scale = f16_to_f32(f32_to_f16(largest / 127.0f));
  for (size_t i = 0; i < row.size(); ++i) codes[i] = scale == 0 ? 0 : std::clamp(std::nearbyint(row[i] / scale), -127.0f, 127.0f);
  return scale;
}

Result<LoweredTensors> bind_lowered(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, bool exact) {
  ESPALIER_TRY(check_weights(program, weights));
  LoweredTensors out;
  for (size_t i = 0; i < lowered.weights.size(); ++i) out.push_back(bound(lowered, program, weights, i, exact));
  return out;
}

std::vector<uint8_t> lowered_bytes(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, size_t index) {
  const std::vector<float> values = bound(lowered, program, weights, index, false);
  std::vector<uint8_t> out;
  if (lowered.weights[index].type == ScalarType::i8) {
    for (float v : values) out.push_back(static_cast<uint8_t>(static_cast<int8_t>(v)));
    return out;
  }
  out.reserve(values.size() * 2);
  for (float v : values) {
    const uint16_t bits = f32_to_f16(v);
    out.push_back(static_cast<uint8_t>(bits));
    out.push_back(static_cast<uint8_t>(bits >> 8));
  }
  return out;
}

}  // namespace espalier
