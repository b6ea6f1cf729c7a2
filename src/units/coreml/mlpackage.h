// A lowered program as a Core ML package: Manifest.json, the program as protocol buffers, one file of weights for all functions.
//
// Goals      no library, neither here nor on the user's machine; same program, same bytes.
// Non-goals  nothing is run here. Whether Apple's compiler takes it and which unit it chooses, a Mac must say.
//
// Package    <folder>/Manifest.json, Data/com.apple.CoreML/model.mlmodel, Data/com.apple.CoreML/weights/weight.bin
// Model      specification 9, opset CoreML8 (macOS 15, iOS 18: states, several functions); a function for each of the program's, the first
//            the default one. Ports named as lower/port_names.h says, fp16; indices and offsets int32.
// Weights    64 bytes {u32 count, u32 2}, then for each a record of 64 bytes {u32 0xDEADBEEF, u32 type, u64 bytes, u64 offset} and
//            the bytes: fp16 or int8, little endian, row-major; each at a multiple of 64.
#pragma once

#include <string>

#include "lower/bind.h"
#include "lower/lowered.h"

namespace espalier::coreml {

// Makes the folder, or replaces its three files. Weights are bound one at a time. Requires: a verified lowered program. Refused: weights
// that do not fit `program`, a program without functions, a primitive that has no form there, named with its function.
Status write_mlpackage(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, const std::string& folder);

}  // namespace espalier::coreml
