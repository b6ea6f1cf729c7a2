// Weights rounded to fewer values than their file has, as floats: how much a form costs can be measured before a unit has it.
//
// int4       one fp16 scale for each output, codes -7 to 7
// palette    2, 4, 6 or 8 bits: one table of 2^bits fp16 values for each matrix, chosen by k-means from its own weights
#pragma once

#include <optional>
#include <string>

#include "program/weight_set.h"

namespace espalier {

struct RoundedForm {
  uint32_t palette_bits = 0;  // 0: int4
};
// "int4", "palette2", "palette4", "palette6", "palette8"; nothing: another name.
std::optional<RoundedForm> rounded_form(const std::string& name);

// Matrices rounded, everything else as it is. The new numbers belong to the set. Deterministic.
WeightSet rounded_weights(const Program& program, const WeightSet& weights, RoundedForm form);

}  // namespace espalier
