// `convert --for npu MODEL OUT [--calibrate TEXT]`: a folder that is itself a MODEL, its matrices int8 with one scale for each output, and
// with a text powers of two folded into the weights so that the static unit's fp16 holds every value.
//
// The program stays what it was but for rounding. Same input, same bytes. docs/artifact.md describes the file.
#pragma once

#include <optional>
#include <string>

#include "base/value.h"
#include "convert/choose_scales.h"
#include "models/model.h"
#include "weights/file_lock.h"

namespace espalier {

class ThreadTeam;

struct NpuScales {
  Scaling scaling;
  std::vector<int32_t> exponents;         // by variable
  std::vector<RangedQuantity> quantities; // what they were chosen from
  std::string text;                       // its name
  int64_t positions = 0;
  bool all_zero() const;
};
// Fails as find_scaling and measure_ranges do.
Result<NpuScales> calibrate(const ModelPlan& plan, const WeightSet& weights, const CalibrationText& text, uint32_t threads, const CalibrationProgress& progress);

// The file alone; `scales` null: weights as they are. `progress` gets bytes of codes.
Status write_npu(FileLock lock, const Program& program, const WeightSet& weights, const NpuScales* scales, const std::string& identity, const CalibrationProgress& progress);

// {"text", "positions", "exponents": {...}, "layers": [{"layer", "op", "largest_before", "largest_after", "overflows_before", ...}]}
Value npu_report_json(const Program& program, const NpuScales& scales);
std::string npu_report_text(const Value& report);

}  // namespace espalier
