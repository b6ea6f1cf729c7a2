// What a model is: for people and, as JSON, for programs.
#pragma once

#include <string>

#include "base/value.h"
#include "models/model.h"
#include "units/cpu/pack_weights.h"
#include "weights/checkpoint.h"

namespace espalier {

// {"path", "kind", "family", "layers", "hidden", "vocabulary", "context", "parameters", "weights", "packed_bytes",
//  "program_hash", "chat_template", "notices": [], "tensors": [{"name", "shape", "file", "packed", "bits", "error"}]}
// `packed` is the form that the CPU unit will use under `form`, bits what a weight costs there with its scales; error (relative
// rms against the source) is null where the form is exact or nothing was packed yet. Reads no weights.
Result<Value> inspect_model(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form);

// The same as text.
std::string inspect_text(const Value& inspected);

}  // namespace espalier
