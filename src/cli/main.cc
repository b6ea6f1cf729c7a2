// espalier: the command line.
#include <cstdio>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace espalier::cli {
namespace {

void report_broken(const char* condition, const char* file, int line) {
  err(std::string("espalier: internal error, please report it: ") + file + ":" + std::to_string(line) + ": " + condition + "\n");
}

struct Entry {
  uint32_t command;
  int (*run)(const Arguments&);
};
constexpr Entry kEntries[] = {
    {kRun, run_command},           {kChat, chat_command},       {kScore, score_command},   {kRender, render_command},
    {kTokenize, tokenize_command}, {kInspect, inspect_command}, {kConvert, convert_command}, {kVerify, verify_command},
    {kUnits, units_command},       {kCache, cache_command},     {kBench, bench_command},
    {kProfile, profile_command},     {kFidelity, fidelity_command},   {kExport, export_command},
};

int dispatch(const Parsed& parsed) {
  if (parsed.stop) {
    if (parsed.code == kExitOk) {
      out(parsed.text);
      return finish_output(kExitOk);
    }
    err(parsed.text);
    return parsed.code;
  }
  for (const Entry& entry : kEntries)
    if (entry.command == parsed.arguments.command) return entry.run(parsed.arguments);
  return kExitUsage;
}

}  // namespace
}  // namespace espalier::cli

int main(int argc, char** argv) {
  espalier::set_check_handler(espalier::cli::report_broken);
  espalier::cli::install_signals();
  return espalier::cli::dispatch(espalier::cli::parse_arguments({argv + 1, argv + argc}));
}
