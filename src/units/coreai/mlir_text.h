// A lowered program as text of Core AI's MLIR dialect, in the generic form, and the file of its weights.
//
// Goals      one module with a graph for each function; weights by name, stored once for all functions, so that tools/aimodel.py has
//            nothing to know but where they lie.
// Non-goals  no file format of Apple's is written here: the tool does that with Apple's own library.
//
// Text       coreai.graph @<function name>(states as handles, inputs) -> (one token for each state, outputs), ports named as
//            lower/port_names.h says. f16 everywhere; indices are ui32 (argmax gives no other), "offset" is si32.
// Weights    program.mlir, weights.bin (each weight at a multiple of 64: fp16 or int8, little endian, row-major), weights.json
//            {"name": [offset, bytes], ...}. Same program, same bytes.
#pragma once

#include <string>

#include "lower/bind.h"
#include "lower/lowered.h"

namespace espalier::coreai {

// Requires: a verified program. Refused: a primitive or type that the dialect has no form for, named with its function.
Result<std::string> mlir_text(const LoweredProgram& program);

// Writes the three files into `folder`, which exists. Weights are bound one at a time, so memory stays that of the largest one.
Status write_program(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, const std::string& folder);

}  // namespace espalier::coreai
