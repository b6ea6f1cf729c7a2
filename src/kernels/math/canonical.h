// Canonical elementary functions and the 16-lane sum (rules.md 2.5, 2.9), scalar: the definition, to the bit.
//
// Vector versions with the same bits are in simd_avx512.h, simd_avx2.h and simd_neon.h. Variant sources include those and
// never this header, whose inline functions have external linkage.
//
//   function  error (units in the last place of the result)  special values
//   exp       <= 1.0, subnormal results rounded once         -inf: 0, +inf and x > 88.7228: +inf
//   log       <= 1.0, subnormal arguments taken exactly      ±0: -inf, x < 0: NaN, +inf: +inf
//   tanh      <= 1.5                                         ±inf: ±1, ±0: ±0
//   sigmoid   <= 2.5 for x > -87, below 2^-125               -inf: 0, +inf: 1
//   silu      <= 3 for x > -87, below |silu| < 2^-118        x < -88.7228: -0, -inf: NaN, +inf: +inf
// A NaN gives a NaN; its sign and payload are not defined. Fused multiply-adds are written out, so the flag
// -ffp-contract=off is part of the definition, as is the mode of fp_mode.h (nearest even, subnormals kept).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/math/constants.h"

namespace espalier {

// x · 2ⁿ, n in [-252, 254], rounded once (the first product is exact while x is near 1).
inline float scale_by_power(float x, int32_t n) {
  const int32_t first = n >> 1, second = n - first;
  const float a = std::bit_cast<float>(static_cast<uint32_t>(first + 127) << 23);
  const float b = std::bit_cast<float>(static_cast<uint32_t>(second + 127) << 23);
  return x * a * b;
}

inline float canonical_exp(float x) {
  if (x != x) return x;
  x = x > kExpLow ? x : kExpLow;
  x = x < kExpHigh ? x : kExpHigh;
  const float t = std::fma(x, kLog2E, kRoundMagic);
  const float n = t - kRoundMagic;
  float r = std::fma(-n, kLn2High, x);
  r = std::fma(-n, kLn2Low, r);
  float p = kExpP[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, r, kExpP[i]);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  return scale_by_power(p, static_cast<int32_t>(n));
}

inline float canonical_log(float x) {
  if (!(x >= 0.0f)) return std::numeric_limits<float>::quiet_NaN();
  if (x == 0.0f) return -std::numeric_limits<float>::infinity();
  if (x == std::numeric_limits<float>::infinity()) return x;
  const bool subnormal = x < 0x1p-126f;
  const uint32_t bits = std::bit_cast<uint32_t>(subnormal ? x * 0x1p23f : x) - std::bit_cast<uint32_t>(kSqrtHalf);
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23) - (subnormal ? 23.0f : 0.0f);
  const float f = std::bit_cast<float>((bits & 0x7fffffu) + std::bit_cast<uint32_t>(kSqrtHalf)) - 1.0f;
  float p = kLogP[7];
  for (int i = 6; i >= 0; --i) p = std::fma(p, f, kLogP[i]);
  p = std::fma(p, f, -0.5f);
  const float small = std::fma(e, kLn2LowShort, f * f * p);
  return std::fma(e, kLn2HighShort, f + small);
}

inline float canonical_tanh(float x) {
  const float t = std::fabs(x);
  float y = 0.0f;
  if (t < kTanhSmall) {
    const float z = t * t;
    float p = kTanhP[4];
    for (int i = 3; i >= 0; --i) p = std::fma(p, z, kTanhP[i]);
    y = std::fma(t * z, p, t);
  } else {
    y = 1.0f - 2.0f / (canonical_exp(t + t) + 1.0f);
  }
  return std::copysign(y, x);
}

inline float canonical_sigmoid(float x) { return 1.0f / (1.0f + canonical_exp(-x)); }
inline float canonical_silu(float x) { return x / (1.0f + canonical_exp(-x)); }

// sum16: 16 partial sums by index mod 16, each a chain in ascending order that starts from +0, combined 8, 4, 2, 1.
// Leaving an index out equals adding +0 there, so a masked tail needs no special case.
struct Sum16 {
  float lane[16] = {};
  void add(uint32_t index, float term) { lane[index % 16] += term; }
  void add_product(uint32_t index, float a, float b) { lane[index % 16] = std::fma(a, b, lane[index % 16]); }
  float total() const {
    float s[16];
    for (int i = 0; i < 16; ++i) s[i] = lane[i];
    for (int step = 8; step > 0; step /= 2)
      for (int i = 0; i < step; ++i) s[i] += s[i + step];
    return s[0];
  }
};

}  // namespace espalier
