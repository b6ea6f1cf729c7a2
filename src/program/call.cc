#include "program/call.h"

namespace espalier {
namespace {

Status check_row(const Program& p, const Function& f, const Call& call, size_t r) {
  const Row& row = call.rows[r];
  const std::string where = "row " + std::to_string(r);
  if (row.sequence < 0 || static_cast<size_t>(row.sequence) >= call.states.size())
    return invalid(where + ": sequence " + std::to_string(row.sequence) + " of " + std::to_string(call.states.size()));
  if (row.position < 0) return invalid(where + ": position " + std::to_string(row.position));
  if (row.parent != kState) {
    if (row.parent < 0 || static_cast<size_t>(row.parent) >= r) return invalid(where + ": its parent must be an earlier row");
    const Row& parent = call.rows[static_cast<size_t>(row.parent)];
    if (parent.sequence != row.sequence) return invalid(where + ": its parent belongs to another sequence");
    if (row.position != parent.position + 1)
      return invalid(where + ": position " + std::to_string(row.position) + " must be one above its parent's, " + std::to_string(parent.position));
  }
  const bool embeds = !f.ops.empty() && f.ops.front().kind() == OpKind::embed;
  if (!embeds || (call.function.segment > 0 && row.token == kNoToken)) return {};
  const int32_t table_rows = p.weights[static_cast<size_t>(f.ops.front().weights[0])].rows;
  if (row.token < 0 || row.token >= table_rows)
    return invalid(where + ": token " + std::to_string(row.token) + " is outside the vocabulary of " + std::to_string(table_rows));
  return {};
}

Status check_inputs(const Function& f, const Call& call) {
  for (const Port& in : f.inputs) {
    if (call.function.segment != kNone && in.segment != call.function.segment) continue;
    if (call.function.segment == kNone && in.name.starts_with("edge.")) continue;
    bool found = false;
    for (const NamedTensor& t : call.inputs) {
      if (t.name != in.name) continue;
      const int32_t width = f.values[static_cast<size_t>(in.value)].width;
      if (t.width != width || t.data == nullptr)
        return invalid("input " + in.name + ": expected width " + std::to_string(width) + ", found " + std::to_string(t.width));
      found = true;
    }
    if (!found) return invalid("input " + in.name + " is missing");
  }
  return {};
}

bool has_tap(const Function& f, const std::string& name) {
  for (const Port& out : f.outputs)
    if (out.name == name && !name.starts_with("edge.")) return true;
  return false;
}

}  // namespace

void Outputs::clear() {
  argmax.clear();
  logits.clear();
  top.clear();
  lse.clear();
  for (NamedOutput& tap : taps) tap.data.clear();
  edges.clear();
}

Status check_call(const Program& program, const Call& call) {
  const Function* f = program.find(call.function.role);
  if (f == nullptr) return invalid("program " + program.family + " has no function " + role_name(call.function.role));
  if (call.function.segment != kNone && (call.function.segment < 0 || call.function.segment >= f->segment_count))
    return invalid("segment " + std::to_string(call.function.segment) + " of " + std::to_string(f->segment_count));
  if (call.out == nullptr) return invalid("a call needs a place for its outputs");
  for (size_t r = 0; r < call.rows.size(); ++r) {
    ESPALIER_TRY(check_row(program, *f, call, r));
    if ((call.rows[r].wants & kWantTopK) && call.top_k == 0) return invalid("row " + std::to_string(r) + " wants top-k, and top_k is 0");
  }
  for (const NamedOutput& tap : call.out->taps)
    if (!has_tap(*f, tap.name)) return invalid("no output is called " + tap.name);
  for (size_t i = 0; i < call.states.size(); ++i) {
    if (call.states[i] == nullptr) return invalid("state " + std::to_string(i) + " is null");
    for (size_t j = 0; j < i; ++j)
      if (call.states[j] == call.states[i]) return invalid("one state stands for two sequences of a call");
  }
  return check_inputs(*f, call);
}

}  // namespace espalier
