// `espalier bench --draft oracle:TRACE`: the width rule against fixed widths on a model whose weights say nothing.
//
// A made-up context is imported; decoding plainly from there gives the text that the oracle (measure/oracle_source.h) drafts.
// Rows, verification, commits and the drafter's own calls (where there is one) are real, and so is the comparison of texts. All
// modes decode side by side, some tokens each in turn, so that a machine that slows down for seconds slows them all.
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
  int32_t rounds = 1;
  int32_t turn = 16;      // tokens of a mode before the next one has its turn
};

using OracleProgress = std::function<bool(const std::string& what)>;

// {"trace", "depth", "tokens", "rounds", "rows": [{"mode", "tokens_per_second", "ratio_to_off", "promised_per_second",
//  "promised_ratio", "tokens_per_cycle", "promised_per_cycle", "rows_per_cycle", "ms_per_cycle": {"draft", "verify", "commit",
//  "host"}}], "auto_to_best_fixed": {"best", "ratio"}}, of the sums over the rounds. Fails where a text differs.
// Promised: 1 + the sum of the nodes' reach, what a cycle gains on average over all ways that the trace's dice may fall: the same
// as what came in the long run, without the luck of some dozen cycles. The last ratio is of promised tokens a second.
Result<Value> bench_oracle(Engine::Impl& engine, const OracleTrace& trace, const OracleBenchOptions& options, const OracleProgress& progress = {});
std::string oracle_text(const Value& result);

}  // namespace espalier
