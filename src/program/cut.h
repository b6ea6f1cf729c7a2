// Cuts: a program whose functions run in segments, with the values that cross a border as named inputs and outputs.
// What heterogeneous plans are made of: front and back layers on two units, weights here and attention there.
#pragma once

#include <span>

#include "program/program.h"

namespace espalier {

// Cuts every function behind each of the given layers (ascending, 0 <= layer < layer_count - 1).
Result<Program> cut_after_layers(Program program, std::span<const int32_t> layers);

// Each attention op becomes a segment of its own: even segments hold everything with weights, odd ones softmax(QK^T)V.
Result<Program> cut_round_attention(Program program);

}  // namespace espalier
