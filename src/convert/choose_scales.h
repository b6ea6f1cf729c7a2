// Chooses the exponents of a scaling from counted ranges, so that fp16 neither overflows nor loses numbers.
//
// Wanted   the largest value below 2^13 (8 times that fits: other texts reach higher), numbers down to 2^-16 of the largest above
//          2^-14, where fp16's numbers stop being normal, and scales of int8 rows likewise. What already fits stays as it is; among
//          choices that serve equally well the smallest exponents win. The residual stream moves only for a reason.
// Pure and deterministic: exponents one after the other, each the best of -48 to 48 with the others held, until none changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/ranges.h"

namespace espalier {

inline constexpr int32_t kHeadroomTop = 12;        // exponent of the largest value that is wanted
inline constexpr int32_t kOverflowExponent = 16;   // from here on fp16 has no number
inline constexpr int32_t kNormalExponent = -14;    // below it fp16's numbers lose bits
inline constexpr int32_t kZeroExponent = -25;      // below it they become zero
inline constexpr int32_t kNotableOctaves = 16;     // smaller numbers vanish in any sum with the largest

// By variable.
std::vector<int32_t> choose_scales(const Scaling& scaling, std::span<const RangedQuantity> quantities);

}  // namespace espalier
