// fidelity: one model's choices beside another's on the same text.
#include "measure/fidelity.h"

#include <algorithm>

#include "base/json.h"
#include "cli/bench_parts.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace espalier::cli {
namespace {

constexpr size_t kShown = 20;

// What the options say of MODEL, with --against-... in their place.
Status reference_options(const Arguments& args, OpenOptions& options) {
  options.unit = args.text("against-unit").value_or("reference");
  options.weights = args.text("against-weights").value_or("auto");
  options.kv = args.text("against-kv").value_or("fp16");
  options.activations = OpenOptions().activations;
  if (!options.unit.starts_with("static")) options.buckets.clear();
  return {};
}

Result<Engine> open_side(const Arguments& args, const std::string& path, bool is_reference) {
  OpenOptions options;
  options.model = path;
  options.speculate = "off";
  ESPALIER_TRY(args.apply(options));
  if (is_reference) ESPALIER_TRY(reference_options(args, options));
  Progress progress(path + ": packing weights", args.flag("quiet"));
  options.on_progress = [&](uint64_t done, uint64_t total) {
    progress.update(done, total);
    return !interrupted();
  };
  Result<Engine> engine = Engine::open(options);
  progress.clear();
  if (!engine.ok()) return std::move(engine).status().with_context(is_reference ? "the reference" : "the model");
  if (!args.flag("quiet"))
    for (const std::string& notice : engine->info().notices) err("espalier: note: " + one_line(notice) + "\n");
  return engine;
}

struct Outcome {
  Fidelity fidelity;
  std::vector<std::string> notices;
};

Result<Outcome> compare(const Arguments& args, const std::string& text, const std::string& path, Engine& model, Engine& reference) {
  const int64_t context = std::min(model.info().context, reference.info().context);
  ESPALIER_ASSIGN(const FidelityTexts texts, read_fidelity_texts(text_reader(*model.impl()), text, path, context));
  Progress progress("comparing", args.flag("quiet") || !err_is_terminal());
  Result<Fidelity> fidelity = measure_fidelity(*model.impl(), *reference.impl(), texts, args.integer("positions").value_or(0), [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return !interrupted();
  });
  progress.clear();
  if (!fidelity.ok()) return std::move(fidelity).status();
  return Outcome{std::move(fidelity).value(), texts.notices};
}

Value json_of(const Engine& model, const Engine& reference, const std::string& path, const Outcome& outcome) {
  Value v = Value::object();
  v.set("model", with_engine(model.info(), Value::object()));
  v.set("reference", with_engine(reference.info(), Value::object()));
  v.set("text", path);
  Value notices = Value::array();
  for (const std::string& notice : outcome.notices) notices.push(notice);
  v.set("notices", std::move(notices));
  const Value measured = fidelity_json(*model.impl(), outcome.fidelity);
  for (const auto& [key, value] : measured.as_object()) v.set(key, value);
  return v;
}

}  // namespace

int fidelity_command(const Arguments& args) {
  const auto against = args.text("against"), path = args.text("text");
  if (!against || !path) return usage("fidelity needs --against REFERENCE and --text FILE");
  const Value* limit = args.find("fail-below");
  if (limit != nullptr && !(limit->as_double() >= 0 && limit->as_double() <= 100))
    return fail(args, invalid("fail-below: expected a percentage from 0 to 100", "fail-below"));
  if (args.integer("positions").value_or(1) < 1) return fail(args, invalid("positions: expected at least 1", "positions"));
  auto text = read_file(*path);
  if (!text.ok()) return fail(args, text.status());
  auto model = open_side(args, args.positionals[0], false);
  if (!model.ok()) return fail(args, model.status());
  auto reference = open_side(args, *against, true);
  if (!reference.ok()) return fail(args, reference.status());
  auto outcome = compare(args, *text, *path, *model, *reference);
  if (!outcome.ok()) return fail(args, outcome.status());
  const FidelityCount& count = outcome->fidelity.deciding();
  const bool failed = limit != nullptr && count.percent() < limit->as_double();
  if (args.flag("json")) {
    out(to_json(json_of(*model, *reference, *path, *outcome)) + "\n");
  } else {
    for (const std::string& notice : outcome->notices) err("espalier: note: " + one_line(notice) + "\n");
    out("model      " + engine_line(model->info()) + "reference  " + engine_line(reference->info()) + fidelity_text(*model->impl(), outcome->fidelity, kShown));
  }
  if (failed) err("espalier: the agreement is below " + std::to_string(limit->as_double()) + " %\n");
  return finish_output(failed ? kExitFailed : kExitOk);
}

}  // namespace espalier::cli
