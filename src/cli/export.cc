// export: a model as a file for Apple's units.
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "engine/export_model.h"

namespace espalier::cli {
namespace {

Result<ExportOptions> options_of(const Arguments& args) {
  ExportOptions o;
  o.model = args.positionals[0];
  o.out = args.positionals[1];
  o.drafter = args.text("drafter").value_or("");
  const std::string weights = args.text("weights").value_or("int8");
  if (weights != "int8" && weights != "fp16") return invalid("weights: such a file holds int8 or fp16, found \"" + weights + "\"", "weights");
  if (weights == "fp16") o.weights = ScalarType::f16;
  ESPALIER_ASSIGN(o.buckets, bucket_list(args.text("buckets").value_or("")));
  ESPALIER_ASSIGN(o.kv, kv_form(args.text("kv-writes").value_or("place")));
  return o;
}

Result<Exported> export_of(const Arguments& args) {
  ESPALIER_ASSIGN(const ExportOptions options, options_of(args));
  return export_model(options);
}

}  // namespace

int export_command(const Arguments& args) {
  const int64_t t0 = now_ns();
  const Result<Exported> done = export_of(args);
  if (!done.ok()) return fail(args, done.status());
  if (args.flag("json")) {
    Value v = Value::object();
    v.set("path", args.positionals[1]);
    v.set("functions", static_cast<int64_t>(done->functions));
    v.set("weights", static_cast<int64_t>(done->weights));
    v.set("bytes", done->bytes);
    v.set("ms", static_cast<double>(now_ns() - t0) / 1e6);
    Value findings = Value::array();
    for (const std::string& f : done->findings) findings.push(f);
    v.set("findings", std::move(findings));
    return print_json(v);
  }
  if (!args.flag("quiet"))
    for (const std::string& f : done->findings) err("espalier: note: " + one_line(f) + "\n");
  out(args.positionals[1] + ": " + std::to_string(done->functions) + " functions over " + std::to_string(done->weights) + " weights, " + std::to_string(done->bytes) + " bytes\n");
  return finish_output(kExitOk);
}

}  // namespace espalier::cli
