// convert, verify, units, cache.
#include <cmath>
#include <cstdio>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "convert/convert.h"
#include "engine/compare_decoding.h"
#include "engine/free_memory.h"
#include "engine/place_model.h"
#include "engine/text_model.h"
#include "kernels/isa.h"
#include "measure/fidelity_text.h"

namespace espalier::cli {
namespace {

Status convert(const Arguments& args) {
  ESPALIER_ASSIGN(const WeightsForm form, weights_form(args.text("weights").value_or("auto")));
  OpenOptions options;
  ESPALIER_TRY(args.apply(options));
  ESPALIER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(args.positionals[0]));
  ESPALIER_ASSIGN(const ModelPlan plan, plan_model(checkpoint));
  ThreadTeam team(options.threads);
  Progress progress(args.positionals[0] + ": packing weights", args.flag("quiet"));
  return convert_model(checkpoint, plan, form, args.positionals[1], team, [&](uint64_t done, uint64_t total) {
    progress.update(done, total);
    return !interrupted();
  });
}

// The texts of --calibrate, as the model's tokens.
Result<CalibrationText> calibration_text(const std::string& path, const Checkpoint& checkpoint, const ModelPlan& plan) {
  ESPALIER_ASSIGN(const std::string text, read_file(path));
  ESPALIER_ASSIGN(const Tokenizer tokenizer, open_tokenizer(checkpoint));
  const Result<ChatFormat> chat = ChatFormat::make(checkpoint, tokenizer);
  const TextReader reader{&tokenizer, chat.ok() ? &*chat : nullptr, chat.ok() ? std::string() : chat.status().message(), plan.program.vocabulary};
  ESPALIER_ASSIGN(FidelityTexts texts, read_fidelity_texts(reader, text, path, plan.context_length));
  CalibrationText out;
  out.name = path.substr(path.rfind('/') + 1);
  for (FidelityText& one : texts.texts) out.texts.push_back(std::move(one.ids));
  return out;
}

// Calibration runs the model in fp32.
Status check_calibration_memory(const Program& program) {
  uint64_t bytes = 0;
  for (const WeightDecl& w : program.weights) bytes += uint64_t{4} * static_cast<uint64_t>(w.rows) * static_cast<uint64_t>(w.cols);
  const auto left = free_memory();
  if (!left || bytes <= *left) return {};
  return {Code::out_of_memory, "--calibrate runs the model in fp32: its weights need " + gigabytes(bytes) + " of memory, and " + gigabytes(*left) + " are free"};
}

Result<Value> convert_npu(const Arguments& args) {
  if (args.text("weights").value_or("int8") != "int8") return invalid("weights: --for npu writes int8, found \"" + *args.text("weights") + "\"", "weights");
  OpenOptions options;
  ESPALIER_TRY(args.apply(options));
  ESPALIER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(args.positionals[0]));
  ESPALIER_ASSIGN(const ModelPlan plan, plan_model(checkpoint));
  std::optional<CalibrationText> text;
  if (const auto path = args.text("calibrate")) {
    ESPALIER_TRY(check_calibration_memory(plan.program));
    ESPALIER_ASSIGN(text, calibration_text(*path, checkpoint, plan));
  }
  Progress progress(args.positionals[0] + ": converting", args.flag("quiet"));
  const uint32_t threads = options.threads == 0 ? default_thread_count() : options.threads;
  return convert_for_npu(checkpoint, plan, text ? &*text : nullptr, args.positionals[1], threads, [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return !interrupted();
  });
}

Value units_json() {
  Value units = Value::array();
  for (const UnitChoice& u : unit_choices()) {
    auto info = u.describe();
    Value one = Value::object();
    one.set("name", u.name);
    one.set("available", info.ok());
    one.set("kernels", info.ok() && !info->kernels.empty() ? Value(info->kernels) : Value());
    one.set("detail", info.ok() ? Value(info->detail) : Value());
    one.set("reason", info.ok() ? Value() : Value(info.status().message()));
    units.push(std::move(one));
  }
  Value variants = Value::array();
  for (const Isa isa : available_isas()) variants.push(isa_name(isa));
  Value v = Value::object();
  v.set("units", std::move(units));
  v.set("kernel_variants", std::move(variants));
  return v;
}

Value cache_json(const std::vector<CacheEntry>& entries, const std::string& key) {
  Value list = Value::array();
  for (const CacheEntry& e : entries) {
    Value one = Value::object();
    one.set("path", e.path);
    one.set("kind", e.kind);
    one.set("source", e.source);
    one.set("bytes", e.bytes);
    list.push(std::move(one));
  }
  Value v = Value::object();
  v.set(key, std::move(list));
  return v;
}

std::string difference_text(const DecodingDifference& d) {
  char text[160];
  snprintf(text, sizeof text, "token %lld: %d and %d, logits of the two best %.6g apart", static_cast<long long>(d.index), d.first, d.second,
           static_cast<double>(d.gap));
  return text;
}

}  // namespace

int convert_command(const Arguments& args) {
  const std::string unit = args.text("for").value_or("cpu");
  if (unit != "cpu" && unit != "npu") return fail(args, invalid("for: expected cpu or npu, found \"" + unit + "\"", "for"));
  if (unit == "cpu" && args.flag("calibrate")) return usage("--calibrate needs --for npu");
  Value report;
  if (unit == "npu") {
    auto made = convert_npu(args);
    if (!made.ok()) return fail(args, made.status());
    report = std::move(made).value();
  } else if (Status s = convert(args); !s.ok()) {
    return fail(args, s);
  }
  if (!args.flag("json")) {
    if (!args.flag("quiet")) err(args.positionals[1] + " is written\n");
    if (!report.is_null()) out(npu_report_text(report));
    return finish_output(kExitOk);
  }
  Value v = Value::object();
  v.set("model", args.positionals[0]);
  v.set("out", args.positionals[1]);
  v.set("report", report);
  return print_json(v);
}

int units_command(const Arguments& args) {
  const Value v = units_json();
  if (args.flag("json")) return print_json(v);
  for (const Value& u : v.find("units")->as_array()) {
    const bool there = u.find("available")->as_bool();
    out(u.find("name")->as_string() + ": " + (there ? "" : "not there: ") + u.find(there ? "detail" : "reason")->as_string() + "\n");
  }
  out("kernel variants: " + to_json(*v.find("kernel_variants")) + "\n");
  return finish_output(kExitOk);
}

int cache_command(const Arguments& args) {
  const std::string& what = args.positionals[0];
  if (what != "list" && what != "clear") return usage("expected: espalier cache list | clear; found " + what);
  auto entries = what == "list" ? list_cache() : clear_cache();
  if (!entries.ok()) return fail(args, entries.status());
  if (args.flag("json")) return print_json(cache_json(*entries, what == "list" ? "entries" : "removed"));
  uint64_t total = 0;
  for (const CacheEntry& e : *entries) {
    total += e.bytes;
    out(gigabytes(e.bytes) + "  " + e.kind + "  " + e.path + (e.source.empty() ? "" : "  (" + e.source + ")") + "\n");
  }
  out(std::to_string(entries->size()) + (entries->size() == 1 ? " file, " : " files, ") + gigabytes(total) + (what == "list" ? "" : " removed") + "\n");
  return finish_output(kExitOk);
}

int verify_command(const Arguments& args) {
  auto engine = open_with_progress(args, args.positionals[0]);
  if (!engine.ok()) return fail(args, engine.status());
  Progress progress("decoding", args.flag("quiet") || !err_is_terminal());
  auto result = compare_decoding(*engine->impl(), kCompareTokens, [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return !interrupted();
  });
  progress.clear();
  if (!result.ok()) return fail(args, result.status());
  const int code = result->difference ? kExitFailed : kExitOk;
  if (args.flag("json")) {
    Value v = Value::object();
    v.set("equal", !result->difference);
    v.set("tokens", result->tokens);
    v.set("same_bits", result->same_bits);
    Value difference;
    if (result->difference) {
      difference = Value::object();
      difference.set("index", result->difference->index);
      difference.set("first", result->difference->first);
      difference.set("second", result->difference->second);
      difference.set("gap", static_cast<double>(result->difference->gap));
    }
    v.set("difference", std::move(difference));
    v.set("ways", Value(Value::Array{"one row a call", "all rows in one call"}));
    v.set("unit", engine->info().unit);
    v.set("kernels", engine->info().kernels);
    out(to_json(v) + "\n");
    return finish_output(code);
  }
  if (result->difference) {
    out("one row a call and all rows in one call differ first at " + difference_text(*result->difference) + "\n");
    return finish_output(code);
  }
  out(std::to_string(result->tokens) + " tokens: one row a call and all rows in one call give the same text" +
      (result->same_bits ? ", and the same logits to the bit" : "") + "\n");
  return finish_output(code);
}

}  // namespace espalier::cli
