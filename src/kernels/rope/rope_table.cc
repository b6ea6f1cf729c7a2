#include "kernels/rope/rope_table.h"

#include <cstddef>

#include "kernels/math/precise.h"

namespace espalier {
namespace {

constexpr double kTwoPi = 0x1.921fb54442d18p+2;

float llama3_scaled(float inverse, const RopeSpec& spec) {
  const double inv = static_cast<double>(inverse);
  const double wavelength = kTwoPi / inv;
  if (wavelength < spec.original_context / spec.high_freq_factor) return inverse;
  if (wavelength > spec.original_context / spec.low_freq_factor) return static_cast<float>(inv / spec.factor);
  const double smooth =
      (spec.original_context / wavelength - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * inv / spec.factor + smooth * inv);
}

}  // namespace

RopeTable::RopeTable(const RopeSpec& spec) : interleaved_(spec.interleaved) {
  const int32_t half = spec.head_dim / 2;
  const double log_theta = precise_log(spec.theta);
  for (int32_t i = 0; i < half; ++i) {
    float inverse = static_cast<float>(precise_exp(-(2.0 * i / spec.head_dim) * log_theta));
    if (!spec.divisors.empty())
      inverse = static_cast<float>(static_cast<double>(inverse) / static_cast<double>(spec.divisors[static_cast<size_t>(i)]));
    inverse_.push_back(spec.factor == 0 ? inverse : llama3_scaled(inverse, spec));
  }
}

void RopeTable::fill_row(int32_t position, float* dst) const {
  const size_t half = inverse_.size();
  for (size_t i = 0; i < half; ++i) {
    const SinCos angle = precise_sincos(static_cast<float>(position) * inverse_[i]);
    dst[i] = static_cast<float>(angle.cos);
    dst[half + i] = static_cast<float>(angle.sin);
  }
}

void RopeTable::fill(std::span<const int32_t> positions, float* dst) const {
  for (size_t r = 0; r < positions.size(); ++r) fill_row(positions[r], dst + r * head_dim());
}

}  // namespace espalier
