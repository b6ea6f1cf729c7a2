// Rotary angles for all units (rules 2.7): cos and sin of fp32(position) · inv[i], by own double polynomials, so that every
// platform has the same bits.
//
//   inv[i] = fp32(theta^(−2i/hd)), i < hd/2; then ÷ divisors[i]; then Llama 3 scaling: wavelengths 2π ÷ inv above
//   original_context ÷ low_freq_factor are divided by factor, those below original_context ÷ high_freq_factor are kept, and
//   between them s = (original_context ÷ wavelength − low) ÷ (high − low), inv' = (1 − s) · inv ÷ factor + s · inv.
//   Each step is computed in double and rounded to fp32 once.
//
// A row costs about a microsecond at head_dim 64 and serves all layers of a call; nothing is kept here.
// Threads   immutable after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace espalier {

class RopeTable {
 public:
  // Requires: spec.theta > 0, head_dim even and > 0, divisors empty or head_dim/2 positive numbers, factors consistent
  // (the program verifier's business).
  explicit RopeTable(const RopeSpec& spec);

  uint32_t head_dim() const { return static_cast<uint32_t>(inverse_.size()) * 2; }
  bool interleaved() const { return interleaved_; }
  std::span<const float> inverse_frequencies() const { return inverse_; }
  // dst (n, head_dim): for each position head_dim/2 cosines, then head_dim/2 sines: RopeArgs rows of qk_norm_rope.h.
  void fill(std::span<const int32_t> positions, float* dst) const;
  void fill_row(int32_t position, float* dst) const;

 private:
  std::vector<float> inverse_;
  bool interleaved_;
};

}  // namespace espalier
