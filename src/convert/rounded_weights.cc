#include "convert/rounded_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/half.h"

namespace espalier {
namespace {

constexpr int32_t kRounds = 100;  // of k-means; it stands still long before
constexpr float kInt4Top = 7;

float to_f16(float x) { return f16_to_f32(f32_to_f16(x)); }

void round_int4(std::span<float> row) {
  float largest = 0;
  for (const float w : row) largest = std::max(largest, std::fabs(w));
  const float scale = to_f16(largest / kInt4Top);
  for (float& w : row) w = scale == 0 ? 0 : scale * std::clamp(std::nearbyint(w / scale), -kInt4Top, kInt4Top);
}

// Values in order with how often they occur.
using Occurrences = std::vector<std::pair<float, int64_t>>;

// Begins with equal shares of the weights; each round moves every entry to the mean of what lies nearest to it.
std::vector<double> find_palette(const Occurrences& values, size_t entries) {
  int64_t total = 0;
  for (const auto& [value, count] : values) total += count;
  std::vector<double> palette;
  int64_t seen = 0;
  for (const auto& [value, count] : values) {
    seen += count;
    while (palette.size() < entries && seen * static_cast<int64_t>(entries) * 2 > total * static_cast<int64_t>(2 * palette.size() + 1)) palette.push_back(static_cast<double>(value));
  }
  for (int32_t round = 0; round < kRounds; ++round) {
    std::vector<double> sum(palette.size()), count(palette.size());
    size_t at = 0;
    for (const auto& [value, n] : values) {
      while (at + 1 < palette.size() && std::fabs(palette[at + 1] - static_cast<double>(value)) <= std::fabs(palette[at] - static_cast<double>(value))) ++at;
      sum[at] += static_cast<double>(value) * static_cast<double>(n);
      count[at] += static_cast<double>(n);
    }
    std::vector<double> next = palette;
    for (size_t i = 0; i < next.size(); ++i)
      if (count[i] > 0) next[i] = sum[i] / count[i];
    if (next == palette) break;
    palette = std::move(next);
    std::sort(palette.begin(), palette.end());
  }
  return palette;
}

void round_to_palette(std::span<float> values, uint32_t bits) {
  std::map<float, int64_t> counted;
  for (float& w : values) ++counted[w = to_f16(w)];
  const std::vector<double> palette = find_palette({counted.begin(), counted.end()}, size_t{1} << bits);
  for (float& w : values) {
    const double x = static_cast<double>(w);
    auto above = std::lower_bound(palette.begin(), palette.end(), x);
    if (above == palette.end() || (above != palette.begin() && x - *(above - 1) <= *above - x)) --above;
    w = to_f16(static_cast<float>(*above));
  }
}

SourceMatrix rounded(const SourceMatrix& source, RoundedForm form, WeightSet& owner) {
  const size_t rows = source.rows(), cols = source.cols();
  const auto values = std::make_shared<std::vector<float>>(rows * cols);
  source.dequantize(0, rows, values->data());
  if (form.palette_bits > 0) round_to_palette(*values, form.palette_bits);
  for (size_t r = 0; r < rows && form.palette_bits == 0; ++r) round_int4(std::span(*values).subspan(r * cols, cols));
  Result<SourceMatrix> made = SourceMatrix::make(TensorView{source.name(), StorageType::f32, {rows, cols}, std::as_bytes(std::span(*values))}, rows, cols);
  ESP_CHECK(made.ok());
  owner.owners.push_back(values);
  return std::move(made).value();
}

}  // namespace

std::optional<RoundedForm> rounded_form(const std::string& name) {
  if (name == "int4") return RoundedForm{0};
  for (const uint32_t bits : {2u, 4u, 6u, 8u})
    if (name == "palette" + std::to_string(bits)) return RoundedForm{bits};
  return std::nullopt;
}

WeightSet rounded_weights(const Program& program, const WeightSet& weights, RoundedForm form) {
  WeightSet out = weights;
  for (size_t w = 0; w < program.weights.size(); ++w)
    if (out.entries[w].matrix) out.entries[w].matrix = rounded(*weights.entries[w].matrix, form, out);
  return out;
}

}  // namespace espalier
