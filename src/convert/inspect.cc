#include "convert/inspect.h"

#include <cstdio>

#include "convert/packed_file.h"

namespace espalier {
namespace {

std::string hex(uint64_t h) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

struct Forms {
  std::string file;
  PackedForm packed;
  Value error;  // null: exact, or not known yet
};

// A converted folder has its forms; any other model gets the ones that packing would choose.
Result<std::vector<Forms>> matrix_forms(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form) {
  std::vector<Forms> out(plan.program.weights.size());
  if (checkpoint.kind() == CheckpointKind::packed) {
    ESPALIER_ASSIGN(const PackedWeights packed, read_packed(plan.program, checkpoint.tensors(), checkpoint.container_metadata(), nullptr));
    for (size_t i = 0; i < out.size(); ++i) {
      if (packed.entries[i].matrix.data == nullptr) continue;
      out[i].packed = packed.entries[i].matrix.form;
      out[i].file = form_name(out[i].packed);
      if (!packed.entries[i].exact) out[i].error = packed.entries[i].error;
    }
    return out;
  }
  ESPALIER_ASSIGN(const WeightSet weights, bind_weights(plan, checkpoint));
  const std::vector<bool> tables = table_weights(plan.program);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!weights.entries[i].matrix) continue;
    out[i].file = weights.entries[i].matrix->form().text();
    ESPALIER_ASSIGN(out[i].packed, packed_form(*weights.entries[i].matrix, form, tables[i]));
  }
  return out;
}

Value tensor_value(const WeightDecl& decl, const Forms& forms) {
  Value t = Value::object();
  t.set("name", decl.name);
  Value shape = Value::array();
  if (decl.kind != WeightDecl::Kind::vector) shape.push(int64_t{decl.rows});
  shape.push(int64_t{decl.cols});
  t.set("shape", std::move(shape));
  const bool matrix = decl.kind == WeightDecl::Kind::matrix;
  t.set("file", matrix ? Value(forms.file) : Value("float"));
  t.set("packed", matrix ? Value(form_name(forms.packed)) : Value("fp32"));
  t.set("bits", matrix ? bits_per_weight(forms.packed) : 32.0);
  t.set("error", forms.error);
  return t;
}

std::string human(double n) {
  char text[32];
  const char* unit = n >= 1e9 ? "G" : n >= 1e6 ? "M" : n >= 1e3 ? "k" : "";
  const double scaled = n >= 1e9 ? n / 1e9 : n >= 1e6 ? n / 1e6 : n >= 1e3 ? n / 1e3 : n;
  std::snprintf(text, sizeof text, "%.4g %s", scaled, unit);
  return text;
}

}  // namespace

Result<Value> inspect_model(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form) {
  ESPALIER_ASSIGN(const std::vector<Forms> forms, matrix_forms(checkpoint, plan, form));
  int64_t parameters = 0;
  uint64_t bytes = 0;
  Value tensors = Value::array();
  for (size_t i = 0; i < forms.size(); ++i) {
    const WeightDecl& decl = plan.program.weights[i];
    parameters += int64_t{decl.rows} * decl.cols;
    if (decl.kind == WeightDecl::Kind::matrix) bytes += packed_bytes(forms[i].packed);
    tensors.push(tensor_value(decl, forms[i]));
  }
  Value out = Value::object();
  out.set("path", checkpoint.path());
  out.set("kind", name_of(checkpoint.kind()));
  out.set("family", plan.program.family);
  out.set("layers", int64_t{plan.program.layer_count});
  out.set("hidden", int64_t{plan.program.hidden});
  out.set("vocabulary", int64_t{plan.program.vocabulary});
  out.set("context", int64_t{plan.context_length});
  out.set("parameters", parameters);
  out.set("weights", weights_form_name(form));
  out.set("packed_bytes", bytes);
  out.set("program_hash", hex(program_hash(plan.program)));
  out.set("chat_template", !checkpoint.chat_template().empty());
  Value notices = Value::array();
  for (const std::string& n : checkpoint.notices()) notices.push(n);
  for (const std::string& n : plan.notices) notices.push(n);
  out.set("notices", std::move(notices));
  out.set("tensors", std::move(tensors));
  return out;
}

std::string inspect_text(const Value& v) {
  const auto text = [&](const char* key) { return v.find(key)->as_string(); };
  const auto number = [&](const char* key) { return v.find(key)->as_int(); };
  std::string out = text("path") + "\n  " + text("family") + " (" + text("kind") + "), " + human(static_cast<double>(number("parameters"))) + "parameters, " +
                    std::to_string(number("layers")) + " layers of " + std::to_string(number("hidden")) + ", vocabulary " + std::to_string(number("vocabulary")) + ", context " +
                    std::to_string(number("context")) + "\n  packed " + human(static_cast<double>(number("packed_bytes"))) + "B, program " + text("program_hash") +
                    (v.find("chat_template")->as_bool() ? "" : ", no chat template") + "\n";
  for (const Value& n : v.find("notices")->as_array()) out += "  note: " + n.as_string() + "\n";
  for (const Value& t : v.find("tensors")->as_array()) {
    std::string shape;
    for (const Value& d : t.find("shape")->as_array()) shape += (shape.empty() ? "(" : ", ") + std::to_string(d.as_int());
    char line[320];
    std::snprintf(line, sizeof line, "  %-52s %-16s %-34s -> %-24s %6.3f bits", t.find("name")->as_string().c_str(), (shape + ")").c_str(), t.find("file")->as_string().c_str(),
                  t.find("packed")->as_string().c_str(), t.find("bits")->as_double());
    out += line;
    if (t.find("error")->is_double()) {
      std::snprintf(line, sizeof line, "  error %.2g", t.find("error")->as_double());
      out += line;
    }
    out += "\n";
  }
  return out;
}

}  // namespace espalier
