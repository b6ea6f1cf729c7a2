// `espalier bench`: the time of a call against its rows, prefill and decoding, beside the ceilings of the same run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/value.h"
#include "units/unit.h"

namespace espalier {

struct BenchOptions {
  std::vector<int32_t> rows = {1, 2, 4, 8, 16, 24, 32, 64};
  int32_t prefill = 512;  // rows of one call
  int32_t decode = 32;    // calls of one row, each committed
  int32_t depth = 0;      // rows held before the calls
  int32_t rounds = 7;     // medians are taken over as many
  uint32_t threads = 0;   // of the ceilings: as the unit's
  size_t probe_bytes = size_t{1} << 30;
};

// Called between measurements with a sentence; false ends the bench (cancelled).
using BenchProgress = std::function<bool(const std::string& what)>;

// {"machine": {"read_gbps", "int8_gops"}, "packed_bytes", "macs_per_row", "depth",
//  "calls": [{"rows", "ms", "linear_ms", "read_gbps", "int8_gops", "floor_ms", "share"}],
//  "prefill": {"rows", "ms", "tokens_per_second", "share_of_peak"}, "decode": {"tokens", "ms_per_token", "tokens_per_second"}}
// floor_ms: the larger of packed_bytes / read_gbps and rows * macs / int8_gops, of the probes round that call; share: floor /
// linear_ms. Every row wants its argmax. Before anything is timed, a call of 8 rows is compared with 8 calls of one.
Result<Value> bench_model(Model& model, const BenchOptions& options, const BenchProgress& progress = {});

// The same as a table for people.
std::string bench_text(const Value& result);

}  // namespace espalier
