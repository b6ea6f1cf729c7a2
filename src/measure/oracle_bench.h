// `espalier bench --draft oracle:TRACE`: the width rule against fixed widths on a model whose weights say nothing.
//
// A made-up context is imported; decoding plainly from there gives the text that the oracle (measure/oracle_source.h) drafts.
// Rows, verification, commits and the drafter's own calls (where there is one) are real, and so is the comparison of texts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "measure/oracle_source.h"

namespace espalier {

struct OracleBenchOptions {
  std::vector<std::string> modes = {"off", "tree:8", "tree:16", "tree:24", "tree:48", "tree:64", "auto"};
  int32_t depth = 1024;  // rows held before
  int32_t tokens = 64;   // decoded in each mode and round
  int32_t rounds = 3;
};

using OracleProgress = std::function<bool(const std::string& what)>;

// {"trace", "depth", "tokens", "rounds", "rows": [{"mode", "tokens_per_second", "ratio_to_off", "tokens_per_cycle",
//  "rows_per_cycle", "ms": {"draft", "verify", "commit", "host"} of all rounds}],
//  "auto_to_best_fixed": {"best", "ratio"}}: medians over rounds; the first round teaches `auto` and is not counted where there are
// more. Fails where a text differs.
Result<Value> bench_oracle(Engine::Impl& engine, const OracleTrace& trace, const OracleBenchOptions& options, const OracleProgress& progress = {});
std::string oracle_text(const Value& result);

}  // namespace espalier
