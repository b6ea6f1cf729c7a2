// Finds the best Markov biases of many tokens in one call of the drafter's unit: at 128,000 x 256 its int8 head reads half the
// bytes of the table in bf16, on all threads, once for all of them.
#pragma once

#include <cstdint>
#include <mutex>

#include "decode/markov_head.h"
#include "units/unit.h"

namespace espalier {

inline constexpr int64_t kScannedTable = 1 << 22;  // numbers: a scan takes a millisecond, little more than a call

// For MarkovHead::use. `turns` is held while the model runs; both are borrowed. Empty where the drafter's table is no larger than
// `scanned`, or its program has no such function.
MarkovHead::Finder markov_finder(Model& drafter, std::mutex& turns, int64_t scanned = kScannedTable);

}  // namespace espalier
