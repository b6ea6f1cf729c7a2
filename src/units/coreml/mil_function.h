// One lowered function as a function of Core ML's model intermediate language. Internal to mlpackage.cc.
#pragma once

#include "lower/lowered.h"
#include "units/coreml/protobuf.h"

namespace espalier::coreml {

// `offset_of`: by weight of the program, where its record lies in the file of weights.
Result<Message> mil_function(const LoweredProgram& program, const LoweredFunction& function, const std::vector<uint64_t>& offset_of);

}  // namespace espalier::coreml
