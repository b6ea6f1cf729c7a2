// What the benches share.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"

namespace espalier::cli {

int bench_drafts_command(const Arguments& args);
int bench_sequences_command(const Arguments& args);

// "1,2,8" of option `name`.
Result<std::vector<int32_t>> row_list(const std::string& text, const char* name);
Result<int32_t> count_option(const Arguments& args, const char* name, int32_t fallback);
// What was measured, behind what it was measured on.
Value with_engine(const EngineInfo& info, const Value& measured);
std::string engine_line(const EngineInfo& info);

}  // namespace espalier::cli
