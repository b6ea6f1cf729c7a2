// bench: times of a model's calls against what the machine allows.
#include "measure/bench.h"

#include <charconv>

#include "base/json.h"
#include "cli/bench_parts.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "engine/engine_impl.h"

namespace espalier::cli {

Result<std::vector<int32_t>> row_list(const std::string& text, const char* name) {
  std::vector<int32_t> rows;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int32_t n = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, n);
    if (error != std::errc() || stop != text.data() + end || n < 1 || n > 4096)
      return invalid(std::string(name) + ": expected numbers from 1 to 4096 separated by commas, found \"" + text + "\"", name);
    rows.push_back(n);
    at = end + 1;
  }
  return rows;
}

Result<int32_t> count_option(const Arguments& args, const char* name, int32_t fallback) {
  const int64_t n = args.integer(name).value_or(fallback);
  if (n < 0 || n > (1 << 24)) return invalid(std::string(name) + ": expected 0 to 16777216, found " + std::to_string(n), name);
  return static_cast<int32_t>(n);
}

// What was measured, behind what it was measured on.
Value with_engine(const EngineInfo& info, const Value& measured) {
  Value v = Value::object();
  v.set("model", info.model);
  v.set("unit", info.unit);
  v.set("kernels", info.kernels);
  v.set("weights", info.weights);
  v.set("kv", info.kv);
  v.set("threads", info.threads);
  v.set("load_ms", info.load_ms);
  for (const auto& [key, value] : measured.as_object()) v.set(key, value);
  return v;
}

std::string engine_line(const EngineInfo& info) {
  return info.model + " on " + info.unit + " (" + info.kernels + ", " + std::to_string(info.threads) + " threads), weights " + info.weights + ", kv " + info.kv + "\n";
}

namespace {

Result<BenchOptions> bench_options(const Arguments& args) {
  BenchOptions options;
  if (const auto rows = args.text("rows")) {
    ESPALIER_ASSIGN(options.rows, row_list(*rows, "rows"));
  }
  ESPALIER_ASSIGN(options.prefill, count_option(args, "prefill", options.prefill));
  ESPALIER_ASSIGN(options.decode, count_option(args, "decode", options.decode));
  ESPALIER_ASSIGN(options.depth, count_option(args, "depth", options.depth));
  ESPALIER_ASSIGN(options.rounds, count_option(args, "rounds", options.rounds));
  return options;
}

}  // namespace

int bench_command(const Arguments& args) {
  if (args.flag("draft") && args.flag("sequences")) return usage("--draft and --sequences cannot be given together");
  if (args.flag("draft")) return bench_drafts_command(args);
  if (args.flag("sequences")) return bench_sequences_command(args);
  auto options = bench_options(args);
  if (!options.ok()) return fail(args, options.status());
  auto engine = open_with_progress(args, args.positionals[0]);
  if (!engine.ok()) return fail(args, engine.status());
  const EngineInfo& info = engine->info();
  options->threads = info.threads;
  const bool quiet = args.flag("quiet");
  auto result = bench_model(*engine->impl()->model, *options, [&](const std::string& what) {
    if (!quiet) err(err_is_terminal() ? "\r\x1b[K" + what : what + "\n");
    return !interrupted();
  });
  if (!quiet && err_is_terminal()) err("\r\x1b[K");
  if (!result.ok()) return fail(args, result.status());
  if (args.flag("json")) return print_json(with_engine(info, *result));
  out(engine_line(info) + bench_text(*result));
  return finish_output(kExitOk);
}

}  // namespace espalier::cli
