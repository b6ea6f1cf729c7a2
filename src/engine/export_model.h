// A model's program as a file for Apple's units: fixed-shape functions, each bucket and form of the head, over one set of weights.
//
// By the ending of `out`
//   .mlpackage  Core ML (units/coreml/mlpackage.h)
//   .aimodel    Core AI, packed by Apple's library: needs the Python that ESPALIER_COREAI_PYTHON names
//   .coreai     a folder with what is packed (units/coreai/mlir_text.h), for tools/aimodel.py on another machine
// Memory stays that of the largest matrix and of the text; Apple's packer takes what it takes.
#pragma once

#include <string>
#include <vector>

#include "lower/lowered.h"

namespace espalier {

struct ExportOptions {
  std::string model;    // a folder or a .gguf file
  std::string drafter;  // its program instead of the model's; empty: the model's
  std::string out;
  std::vector<int32_t> buckets;  // empty: powers of two from 128 to 4096
  ScalarType weights = ScalarType::i8;
  KvForm kv = KvForm::place;
};

struct Exported {
  size_t functions = 0, weights = 0;
  uint64_t bytes = 0;  // of what was written
  std::vector<std::string> findings;  // rules of such engines that the program breaks (lower/lint.h)
};

// Refused: another ending, an `out` that exists, what lowering refuses.
Result<Exported> export_model(const ExportOptions& options);

// "128,512": ascending numbers. Refused, by the field "buckets": anything else. Units check the rest.
Result<std::vector<int32_t>> bucket_list(const std::string& text);
// "place" | "delta" | "dynamic".
Result<KvForm> kv_form(const std::string& name);

}  // namespace espalier
