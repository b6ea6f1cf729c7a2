#include "engine/export_model.h"

#include <charconv>
#include <filesystem>

#include "convert/cache.h"
#include "engine/drafter.h"
#include "lower/lint.h"
#include "lower/port_names.h"
#include "models/model.h"
#include "units/coreai/coreai_backend.h"
#include "units/coreai/mlir_text.h"
#include "units/coreml/mlpackage.h"
#include "units/static/static_unit.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

uint64_t bytes_below(const std::string& path) {
  std::error_code ignored;
  uint64_t bytes = 0;
  for (fs::recursive_directory_iterator at(path, ignored), end; at != end; at.increment(ignored))
    if (at->is_regular_file(ignored)) bytes += at->file_size(ignored);
  return bytes;
}

Status make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? Status(Code::io, path + ": no folder can be made there: " + error.message()) : Status();
}

Status write(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, const std::string& out) {
  if (out.ends_with(".mlpackage")) return coreml::write_mlpackage(lowered, program, weights, out);
  if (out.ends_with(".aimodel")) return write_aimodel(lowered, program, weights, out);
  ESPALIER_TRY(make_folder(out));
  return coreai::write_program(lowered, program, weights, out);
}

Result<Exported> export_program(const Program& program, const WeightSet& weights, const ExportOptions& options) {
  StaticOptions chosen;
  if (!options.buckets.empty()) chosen.buckets = options.buckets;
  chosen.weights = options.weights;
  chosen.kv = options.kv;
  ESPALIER_TRY(check_static_options(chosen));
  ESPALIER_ASSIGN(const LoweredProgram lowered, lower(program, static_functions(program, chosen)));
  ESPALIER_TRY(write(lowered, program, weights, options.out));
  Exported done;
  for (const LoweredFunction& f : lowered.functions) done.functions += is_exported(f);
  done.weights = lowered.weights.size();
  done.bytes = bytes_below(options.out);
  for (const LintFinding& f : lint(lowered)) done.findings.push_back(text(f));
  return done;
}

}  // namespace

Result<Exported> export_model(const ExportOptions& options) {
  const bool known = options.out.ends_with(".mlpackage") || options.out.ends_with(".aimodel") || options.out.ends_with(".coreai");
  if (!known) return invalid("export: " + options.out + " ends with none of .mlpackage (Core ML), .aimodel (Core AI) and .coreai (what is packed into an .aimodel)", "out");
  if (fs::exists(options.out)) return invalid("export: " + options.out + " exists; remove it or choose another name", "out");
  ESPALIER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model));
  ESPALIER_ASSIGN(const ModelPlan plan, plan_model(checkpoint));
  ESPALIER_ASSIGN(const WeightSet weights, float_weights(plan, checkpoint));
  if (options.drafter.empty()) return export_program(plan.program, weights, options);
  ESPALIER_ASSIGN(const std::unique_ptr<Drafter> drafter, plan_drafter_at(options.drafter, plan.program));
  ESPALIER_ASSIGN(const WeightSet own, bind_drafter_weights(drafter->plan, drafter->checkpoint, plan.program, weights));
  return export_program(drafter->plan.model.program, own, options);
}

Result<std::vector<int32_t>> bucket_list(const std::string& text) {
  std::vector<int32_t> out;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int32_t n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    if (error != std::errc() || (next != end && (*next != ',' || next + 1 == end))) return invalid("buckets: expected numbers with commas between them, found \"" + text + "\"", "buckets");
    out.push_back(n);
    at = next == end ? end : next + 1;
  }
  return out;
}

Result<KvForm> kv_form(const std::string& name) {
  for (KvForm form : {KvForm::place, KvForm::delta, KvForm::dynamic})
    if (name == kv_form_name(form)) return form;
  return invalid("kv-writes: expected place, delta or dynamic, found \"" + name + "\"", "kv-writes");
}

}  // namespace espalier
