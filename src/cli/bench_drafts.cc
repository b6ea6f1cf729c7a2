// bench --draft and bench --sequences.
#include <fstream>

#include "base/json.h"
#include "cli/bench_parts.h"
#include "cli/terminal.h"
#include "engine/engine_impl.h"
#include "measure/bench_prompts.h"
#include "measure/draft_bench.h"
#include "measure/oracle_bench.h"
#include "measure/sequences_bench.h"

namespace espalier::cli {
namespace {

constexpr const char* kOracle = "oracle:";

std::function<bool(const std::string&)> progress_of(const Arguments& args) {
  const bool quiet = args.flag("quiet");
  return [quiet](const std::string& what) {
    if (!quiet) err(err_is_terminal() ? "\r\x1b[K" + what : what + "\n");
    return !interrupted();
  };
}

void end_progress(const Arguments& args) {
  if (!args.flag("quiet") && err_is_terminal()) err("\r\x1b[K");
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Result<std::vector<ReadPrompt>> prompts_of(const Arguments& args, const Engine& engine) {
  const auto path = args.text("jsonl");
  if (!path) return std::vector<ReadPrompt>();
  ESPALIER_ASSIGN(const std::string text, read_file(*path));
  return read_bench_prompts(*engine.impl(), text, *path);
}

int print(const Arguments& args, const Engine& engine, const Value& value, const std::string& text) {
  if (args.flag("json")) return print_json(with_engine(engine.info(), value));
  out(engine_line(engine.info()) + text);
  return finish_output(kExitOk);
}

Status write_trace(const std::string& path, const DraftBench& bench, const EngineInfo& info, const std::string& mode) {
  std::ofstream file(path);
  file << to_json(trace_json(bench.trace.trace("the drafter " + info.drafter + " with " + mode))) << "\n";
  file.close();
  return file ? Status() : Status(Code::io, path + ": cannot be written", "trace");
}

Result<DraftBenchOptions> draft_options(const Arguments& args) {
  DraftBenchOptions options;
  if (const auto modes = args.text("modes")) options.modes = words_of(*modes);
  if (const auto sources = args.text("sources")) options.sources = *sources;
  if (const Value* t = args.find("temperature")) options.temperatures = {t->as_double()};
  if (args.flag("trace")) {
    options.traced = "tree:64";
    options.modes.push_back(options.traced);
  }
  ESPALIER_ASSIGN(options.rounds, count_option(args, "rounds", options.rounds));
  ESPALIER_ASSIGN(options.max_tokens, count_option(args, "max-tokens", static_cast<int32_t>(options.max_tokens)));
  return options;
}

int drafts_of_model(const Arguments& args, const Engine& engine) {
  auto options = draft_options(args);
  if (!options.ok()) return fail(args, options.status());
  auto prompts = prompts_of(args, engine);
  if (!prompts.ok()) return fail(args, prompts.status());
  auto bench = bench_drafts(*engine.impl(), *prompts, *options, progress_of(args));
  end_progress(args);
  if (!bench.ok()) return fail(args, bench.status());
  if (const auto path = args.text("trace"))
    if (const Status wrote = write_trace(*path, *bench, engine.info(), options->traced); !wrote.ok()) return fail(args, wrote);
  return print(args, engine, drafts_json(*bench), drafts_text(*bench));
}

int drafts_of_oracle(const Arguments& args, const Engine& engine, const std::string& path) {
  const auto run = [&]() -> Result<Value> {
    ESPALIER_ASSIGN(const std::string text, read_file(path));
    ESPALIER_ASSIGN(const OracleTrace trace, read_trace(text, path));
    OracleBenchOptions options;
    if (const auto modes = args.text("modes")) options.modes = words_of(*modes);
    ESPALIER_ASSIGN(options.depth, count_option(args, "depth", options.depth));
    ESPALIER_ASSIGN(options.tokens, count_option(args, "decode", options.tokens));
    ESPALIER_ASSIGN(options.rounds, count_option(args, "rounds", options.rounds));
    return bench_oracle(*engine.impl(), trace, options, progress_of(args));
  };
  auto result = run();
  end_progress(args);
  if (!result.ok()) return fail(args, result.status());
  return print(args, engine, *result, oracle_text(*result));
}

}  // namespace

int bench_drafts_command(const Arguments& args) {
  const std::string what = args.text("draft").value_or("");
  const bool oracle = what.starts_with(kOracle);
  if (!oracle && what != "model") return usage("--draft: expected model or oracle:TRACE, found " + what);
  if (!oracle && !args.flag("jsonl")) return usage("--draft model needs prompts: --jsonl FILE");
  auto engine = open_with_progress(args, args.positionals[0]);
  if (!engine.ok()) return fail(args, engine.status());
  return oracle ? drafts_of_oracle(args, *engine, what.substr(std::string(kOracle).size())) : drafts_of_model(args, *engine);
}

int bench_sequences_command(const Arguments& args) {
  SequencesBenchOptions options;
  const auto read = [&]() -> Status {
    ESPALIER_ASSIGN(options.sequences, row_list(*args.text("sequences"), "sequences"));
    for (const int32_t n : options.sequences)
      if (n > 1024) return invalid("sequences: expected at most 1024, found " + std::to_string(n), "sequences");
    ESPALIER_ASSIGN(options.rounds, count_option(args, "rounds", options.rounds));
    ESPALIER_ASSIGN(options.tokens, count_option(args, "max-tokens", options.tokens));
    if (const auto modes = args.text("modes")) options.mode = *modes;
    return {};
  };
  if (const Status wrong = read(); !wrong.ok()) return fail(args, wrong);
  auto engine = open_with_progress(args, args.positionals[0]);
  if (!engine.ok()) return fail(args, engine.status());
  auto prompts = prompts_of(args, *engine);
  if (!prompts.ok()) return fail(args, prompts.status());
  auto result = bench_sequences(*engine->impl(), *prompts, options, progress_of(args));
  end_progress(args);
  if (!result.ok()) return fail(args, result.status());
  return print(args, *engine, *result, sequences_text(*result));
}

}  // namespace espalier::cli
