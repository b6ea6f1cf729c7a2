// The static unit: any call as runs of fixed-shape functions, a window of rows and one of a few K/V buckets, over a back end.
//
// Functions  for each function of the program, each bucket and each form of the head one lowered function; the smallest bucket
//            that holds the context runs. Padding rows repeat the first one and see only themselves.
// State      K/V columns and frames in the functions' layout. Accepted rows that no window has written are fed again in the next
//            call. A sequence holds fewer rows than the largest bucket has columns; with `dynamic` a window fewer.
// Several sequences share a window where their columns fit one bucket (place, delta).
// Refused    segments of cut programs; a group of rows that see each other above the window's rows; contexts beyond the largest
//            bucket, with both numbers.
#pragma once

#include <memory>

#include "lower/lower.h"
#include "units/static/backend.h"
#include "units/unit.h"

namespace espalier {

struct StaticOptions {
  int32_t rows = 64;                                            // of a window
  std::vector<int32_t> buckets = {128, 256, 512, 1024, 2048, 4096};  // columns, ascending
  KvForm kv = KvForm::place;
  ScalarType weights = ScalarType::f16;
  NormForm norm = NormForm::scaled;
  int32_t subrange = 2000;
  int32_t attention_chunks = 1;
  EvaluateOptions evaluate = {Arithmetic::f16};  // of the evaluator as back end
};

// Refused: windows or buckets of no use, named.
Status check_static_options(const StaticOptions& options);
// One function for each of the program's, each bucket and each form of the head.
LowerOptions static_functions(const Program& program, const StaticOptions& options);

// Over the evaluator. Refused: windows or buckets of no use, named.
Result<std::unique_ptr<Unit>> make_static_unit(const StaticOptions& options);
// Over another back end; `name` is the unit's ("static:coreai"). `rounds`: its values are fp16.
Result<std::unique_ptr<Unit>> make_static_unit(const StaticOptions& options, std::string name, MakeBackend make_backend, bool rounds);

// What rounding did to the values of a static unit's model so far, by function and op; empty where nothing was lost.
std::string static_range_report(const Model& model);
const LoweredProgram* static_lowered(const Model& model);  // null: not a static unit's

}  // namespace espalier
