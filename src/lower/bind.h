// The numbers of a lowered program's weights, in the types that it declares.
#pragma once

#include <span>

#include "lower/lowered.h"
#include "program/weight_set.h"

namespace espalier {

// By index of LoweredProgram::weights, row-major; int8 codes as whole numbers. Immutable, thread-safe.
using LoweredTensors = std::vector<std::vector<float>>;

// One output's int8 codes as whole numbers: scale = fp16(max|w| / 127), codes = w / scale to nearest even, within 127. Returns the scale.
// Requires: codes.size() == row.size(); they may be the same. A row whose scale is 0 has codes of 0.
float quantise_row(std::span<const float> row, std::span<float> codes);

// `exact`: f16 weights keep the source's fp32 values (for arithmetic in fp32); else they are rounded to fp16.
// int8: quantise_row. Same input, same numbers.
// Refused: weights that do not fit the program (check_weights).
Result<LoweredTensors> bind_lowered(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, bool exact);

// One weight of it as an accelerator's file has it: fp16 (rounded) or int8, little endian, row-major. One at a time needs no memory
// for the others. Requires: weights that fit (check_weights).
std::vector<uint8_t> lowered_bytes(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, size_t index);

}  // namespace espalier
