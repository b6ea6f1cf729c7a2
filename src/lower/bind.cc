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

float row_scale(std::span<const float> row) {
  float largest = 0;
  for (const float w : row) largest = std::max(largest, std::fabs(w));
  return f16_to_f32(f32_to_f16(largest / 127.0f));
}

std::vector<float> quantised(const LoweredWeight& w, size_t cols, std::vector<float> values) {
  const auto row = [&](size_t r) { return std::span(values).subspan(r * cols, cols); };
  std::vector<float> scales;
  for (size_t r = 0; r < static_cast<size_t>(w.rows); ++r) {
    if (w.part == LoweredWeight::Part::scales) scales.push_back(row_scale(row(r)));
    else quantise_row(row(r), row(r));
  }
  if (w.part == LoweredWeight::Part::scales) return scales;
  return values;
}

std::vector<float> bound(const LoweredWeight& w, const Program& program, const WeightSet& weights, bool exact) {
  const WeightDecl& decl = program.weights[static_cast<size_t>(w.source)];
  std::vector<float> values = source_values(w, decl, weights.entries[static_cast<size_t>(w.source)]);
  if (w.type == ScalarType::i8 || w.part == LoweredWeight::Part::scales) return quantised(w, static_cast<size_t>(decl.cols), std::move(values));
  if (!exact)
    for (float& v : values) v = f16_to_f32(f32_to_f16(v));
  return values;
}

}  // namespace

float quantise_row(std::span<const float> row, std::span<float> codes) {
  const float scale = row_scale(row);
  for (size_t i = 0; i < row.size(); ++i) codes[i] = scale == 0 ? 0 : std::clamp(std::nearbyint(row[i] / scale), -127.0f, 127.0f);
  return scale;
}

Result<LoweredTensors> bind_lowered(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, bool exact) {
  ESPALIER_TRY(check_weights(program, weights));
  LoweredTensors out;
  for (const LoweredWeight& w : lowered.weights) out.push_back(bound(w, program, weights, exact));
  return out;
}

std::vector<uint8_t> lowered_bytes(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, size_t index) {
  constexpr int32_t kRowsAtOnce = 256;
  const LoweredWeight& w = lowered.weights[index];
  const bool is_int8 = w.type == ScalarType::i8;
  const int32_t step = w.part == LoweredWeight::Part::column ? w.rows : kRowsAtOnce;
  std::vector<uint8_t> out;
  out.reserve(static_cast<size_t>(elements(w.shape)) * (is_int8 ? 1 : 2));
  for (int32_t row = 0; row < w.rows; row += step) {
    LoweredWeight part = w;
    part.first += row;
    part.rows = std::min(step, w.rows - row);
    for (const float v : bound(part, program, weights, false)) {
      const uint16_t bits = is_int8 ? static_cast<uint8_t>(static_cast<int8_t>(v)) : f32_to_f16(v);
      out.push_back(static_cast<uint8_t>(bits));
      if (!is_int8) out.push_back(static_cast<uint8_t>(bits >> 8));
    }
  }
  return out;
}

}  // namespace espalier
