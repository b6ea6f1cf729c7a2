// The program as text. Golden files in the tests hold this form: change it only together with them.
#include <charconv>

#include "program/program.h"

namespace espalier {
namespace {

// As %g prints it, whatever the locale: the text is a part of the program's hash.
std::string number(double d) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::general, 6).ptr};
}
std::string number(int32_t i) { return std::to_string(i); }

std::string value_ref(const Function& f, ValueId v) {
  if (v == kNone) return "-";
  return "%" + number(v) + ":" + f.values[static_cast<size_t>(v)].name;
}

std::string attr_text(const OpAttr& attr) {
  if (const auto* a = std::get_if<RmsNormAttr>(&attr)) return " eps " + number(a->eps);
  if (const auto* a = std::get_if<ShortConvAttr>(&attr))
    return " kernel " + number(a->kernel) + (a->centred ? " centred" : "");
  if (const auto* a = std::get_if<QkNormRopeAttr>(&attr))
    return " heads " + number(a->n_heads) + "/" + number(a->n_kv_heads) + " of " + number(a->head_dim) + " eps " +
           number(a->eps) + " rope " + number(a->rope) + " q_scale " + number(a->q_scale);
  if (const auto* a = std::get_if<AttentionAttr>(&attr))
    return " heads " + number(a->n_heads) + "/" + number(a->n_kv_heads) + " of " + number(a->head_dim) +
           (a->mask == MaskKind::ancestors ? " ancestors" : " group") + (a->keep ? " keep" : "");
  return "";
}

std::string op_line(const Program& p, const Function& f, const Op& op) {
  std::string line = "  ";
  if (f.segment_count > 1) line += "[" + number(op.segment) + "] ";
  bool first = true;
  for (ValueId v : op.out) {
    line += (first ? "" : ", ") + value_ref(f, v);
    if (v != kNone) line += " (" + number(f.values[static_cast<size_t>(v)].width) + ")";
    first = false;
  }
  line += (op.out.empty() ? "" : " = ") + std::string(op.name());
  for (ValueId v : op.in) line += " " + value_ref(f, v);
  for (WeightId w : op.weights)
    if (w != kNone) line += " " + p.weights[static_cast<size_t>(w)].name;
  if (op.state != kNone) line += " @" + p.states[static_cast<size_t>(op.state)].name;
  return line + attr_text(op.attr) + "\n";
}

std::string state_line(const StateDecl& s) {
  const bool kv = s.kind == StateDecl::Kind::kv;
  return "state " + s.name + (kv ? " kv heads " + number(s.n_kv_heads) + " of " + number(s.head_dim)
                                 : " frames " + number(s.frame_count) + " of " + number(s.width)) + "\n";
}

std::string rope_line(const RopeSpec& r, size_t index) {
  std::string line = "rope " + std::to_string(index) + " theta " + number(r.theta) + " head_dim " + number(r.head_dim) +
                     (r.interleaved ? " interleaved" : " half-split");
  if (r.factor != 0)
    line += " llama3 factor " + number(r.factor) + " low " + number(r.low_freq_factor) + " high " +
            number(r.high_freq_factor) + " original " + number(r.original_context);
  if (!r.divisors.empty()) line += " divisors " + std::to_string(r.divisors.size());
  return line + "\n";
}

}  // namespace

std::string dump(const Program& p) {
  std::string text = "program " + p.family + " layers " + number(p.layer_count) + " hidden " + number(p.hidden) +
                     " vocabulary " + number(p.vocabulary) + "\n";
  for (const WeightDecl& w : p.weights) {
    text += "weight " + w.name + " (" + (w.kind != WeightDecl::Kind::vector ? number(w.rows) + ", " : "") + number(w.cols) + ")";
    text += (w.owner.empty() ? "" : " of " + w.owner) + "\n";
  }
  for (const StateDecl& s : p.states) text += state_line(s);
  for (size_t i = 0; i < p.ropes.size(); ++i) text += rope_line(p.ropes[i], i);
  for (const Function& f : p.functions) {
    text += std::string("function ") + role_name(f.role);
    if (f.segment_count > 1) text += " segments " + number(f.segment_count);
    text += "\n";
    for (const Port& in : f.inputs) text += "  input " + in.name + " -> " + value_ref(f, in.value) + " (" +
                                            number(f.values[static_cast<size_t>(in.value)].width) + ") segment " + number(in.segment) + "\n";
    for (const Op& op : f.ops) text += op_line(p, f, op);
    for (const Port& out : f.outputs) text += "  output " + out.name + " = " + value_ref(f, out.value) + " segment " + number(out.segment) + "\n";
  }
  return text;
}

}  // namespace espalier
