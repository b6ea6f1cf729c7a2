// Checks a program before anything runs: ids, widths, single assignment, order, states, segments, ports.
#include "program/ops.h"
#include "program/program.h"

namespace espalier {
namespace {

class Checker {
 public:
  Checker(const Program& p, const Function& f) : p_(p), f_(f), written_by_(f.values.size(), kNone) {}
  Status run();

 private:
  Status fail(const Op& op, const std::string& what) const {
    const size_t index = static_cast<size_t>(&op - f_.ops.data());
    return corrupt("program " + p_.family + ", function " + role_name(f_.role) + ", op " + std::to_string(index) + " " +
                   op.name() + ": " + what);
  }
  Status check_ids(const Op& op) const;
  Status check_reads(const Op& op) const;
  Status check_shapes(const Op& op) const;
  Status expect(const Op& op, const char* what, int64_t expected, int64_t found) const {
    if (expected == found) return {};
    return fail(op, std::string("expected ") + what + " " + std::to_string(expected) + ", found " + std::to_string(found));
  }
  int32_t width(ValueId v) const { return f_.values[static_cast<size_t>(v)].width; }
  const WeightDecl& weight(WeightId w) const { return p_.weights[static_cast<size_t>(w)]; }
  Status expect_vector(const Op& op, WeightId w, const char* what, int32_t n) const {
    if (w == kNone) return {};
    if (weight(w).kind != WeightDecl::Kind::vector) return fail(op, std::string(what) + " must be a vector");
    return expect(op, what, n, weight(w).cols);
  }
  Status check_attention(const Op& op, const AttentionAttr& a) const;
  Status check_qk(const Op& op, const QkNormRopeAttr& a) const;
  Status check_conv(const Op& op, const ShortConvAttr& a) const;
  bool has_input(ValueId v, int32_t segment) const {
    for (const Port& in : f_.inputs)
      if (in.value == v && in.segment == segment) return true;
    return false;
  }

  const Program& p_;
  const Function& f_;
  std::vector<int32_t> written_by_;  // segment of the writer; kNone: not written yet
};

bool in_range(int32_t id, size_t count) { return id >= 0 && static_cast<size_t>(id) < count; }

Status Checker::check_ids(const Op& op) const {
  const OpShape shape = kOpShapes[op.attr.index()];
  ESPALIER_TRY(expect(op, "inputs", shape.inputs, static_cast<int64_t>(op.in.size())));
  ESPALIER_TRY(expect(op, "weights", shape.weights, static_cast<int64_t>(op.weights.size())));
  ESPALIER_TRY(expect(op, "outputs", shape.outputs, static_cast<int64_t>(op.out.size())));
  for (ValueId v : op.in)
    if (v != kNone && !in_range(v, f_.values.size())) return fail(op, "an input is not a value of the function");
  for (ValueId v : op.out)
    if (v != kNone && !in_range(v, f_.values.size())) return fail(op, "an output is not a value of the function");
  for (WeightId w : op.weights)
    if (w != kNone && !in_range(w, p_.weights.size())) return fail(op, "a weight is not declared");
  if (op.state != kNone && !in_range(op.state, p_.states.size())) return fail(op, "a state is not declared");
  if (op.segment < 0 || op.segment >= f_.segment_count) return fail(op, "the segment does not exist");
  const bool q_optional = op.kind() == OpKind::qk_norm_rope || op.kind() == OpKind::attention;
  for (size_t i = q_optional ? 1 : 0; i < op.in.size(); ++i)
    if (op.in[i] == kNone) return fail(op, "input " + std::to_string(i) + " is missing");
  if (!op.weights.empty() && op.weights[0] == kNone && op.kind() != OpKind::qk_norm_rope)
    return fail(op, "its weight is missing");
  return {};
}

Status Checker::check_reads(const Op& op) const {
  for (ValueId v : op.in) {
    if (v == kNone) continue;
    const int32_t writer = written_by_[static_cast<size_t>(v)];
    const bool here = writer == op.segment;
    if (!here && !has_input(v, op.segment))
      return fail(op, "value " + f_.values[static_cast<size_t>(v)].name + " is read before it is written, or crosses a cut without an edge");
  }
  return {};
}

Status Checker::check_conv(const Op& op, const ShortConvAttr& a) const {
  ESPALIER_TRY(expect(op, "an input width of 3 x the output's,", int64_t{3} * width(op.out[0]), width(op.in[0])));
  if (weight(op.weights[0]).kind != WeightDecl::Kind::taps) return fail(op, "its weight must be taps");
  ESPALIER_TRY(expect(op, "tap rows", width(op.out[0]), weight(op.weights[0]).rows));
  ESPALIER_TRY(expect(op, "taps", a.kernel, weight(op.weights[0]).cols));
  ESPALIER_TRY(expect_vector(op, op.weights[1], "bias of length", width(op.out[0])));
  if (a.centred) return op.state == kNone ? Status() : fail(op, "a centred conv keeps no state");
  if (op.state == kNone) return fail(op, "it needs a frames state");
  const StateDecl& s = p_.states[static_cast<size_t>(op.state)];
  if (s.kind != StateDecl::Kind::frames) return fail(op, "its state must be frames");
  ESPALIER_TRY(expect(op, "frames", a.kernel - 1, s.frame_count));
  return expect(op, "a frame width of", width(op.out[0]), s.width);
}

Status Checker::check_qk(const Op& op, const QkNormRopeAttr& a) const {
  if (!in_range(a.rope, p_.ropes.size())) return fail(op, "its rope is not declared");
  ESPALIER_TRY(expect(op, "a rope of head size", a.head_dim, p_.ropes[static_cast<size_t>(a.rope)].head_dim));
  if (a.head_dim % 2 != 0) return fail(op, "the head size must be even");
  if ((op.in[0] == kNone) != (op.out[0] == kNone)) return fail(op, "q must be both read and written, or neither");
  if (op.in[0] != kNone) {
    ESPALIER_TRY(expect(op, "a q width of", int64_t{a.n_heads} * a.head_dim, width(op.in[0])));
    ESPALIER_TRY(expect(op, "an output q width of", width(op.in[0]), width(op.out[0])));
  }
  ESPALIER_TRY(expect(op, "a k width of", int64_t{a.n_kv_heads} * a.head_dim, width(op.in[1])));
  ESPALIER_TRY(expect(op, "an output k width of", width(op.in[1]), width(op.out[1])));
  ESPALIER_TRY(expect_vector(op, op.weights[0], "q norm of length", a.head_dim));
  return expect_vector(op, op.weights[1], "k norm of length", a.head_dim);
}

Status Checker::check_attention(const Op& op, const AttentionAttr& a) const {
  if (a.n_kv_heads <= 0 || a.n_heads % a.n_kv_heads != 0) return fail(op, "query heads must be a multiple of K/V heads");
  if ((op.in[0] == kNone) != (op.out[0] == kNone)) return fail(op, "without q there is no output, and with q there is one");
  if (op.in[0] != kNone) {
    ESPALIER_TRY(expect(op, "a q width of", int64_t{a.n_heads} * a.head_dim, width(op.in[0])));
    ESPALIER_TRY(expect(op, "an output width of", width(op.in[0]), width(op.out[0])));
  }
  for (int i : {1, 2}) ESPALIER_TRY(expect(op, "a k and v width of", int64_t{a.n_kv_heads} * a.head_dim, width(op.in[static_cast<size_t>(i)])));
  if (op.state == kNone) return a.keep ? fail(op, "it keeps rows and has no state") : Status();
  const StateDecl& s = p_.states[static_cast<size_t>(op.state)];
  if (s.kind != StateDecl::Kind::kv) return fail(op, "its state must be kv");
  ESPALIER_TRY(expect(op, "state K/V heads", a.n_kv_heads, s.n_kv_heads));
  return expect(op, "a state head size of", a.head_dim, s.head_dim);
}

Status Checker::check_shapes(const Op& op) const {
  switch (op.kind()) {
    case OpKind::embed: return expect(op, "table columns", width(op.out[0]), weight(op.weights[0]).cols);
    case OpKind::rms_norm:
      ESPALIER_TRY(expect(op, "an output width of", width(op.in[0]), width(op.out[0])));
      return expect_vector(op, op.weights[0], "weight of length", width(op.in[0]));
    case OpKind::linear:
      ESPALIER_TRY(expect(op, "matrix inputs", width(op.in[0]), weight(op.weights[0]).cols));
      ESPALIER_TRY(expect(op, "an output width of", weight(op.weights[0]).rows, width(op.out[0])));
      return expect_vector(op, op.weights[1], "bias of length", width(op.out[0]));
    case OpKind::short_conv: return check_conv(op, std::get<ShortConvAttr>(op.attr));
    case OpKind::qk_norm_rope: return check_qk(op, std::get<QkNormRopeAttr>(op.attr));
    case OpKind::attention: return check_attention(op, std::get<AttentionAttr>(op.attr));
    case OpKind::swiglu:
    case OpKind::add:
      ESPALIER_TRY(expect(op, "equal input widths,", width(op.in[0]), width(op.in[1])));
      return expect(op, "an output width of", width(op.in[0]), width(op.out[0]));
    case OpKind::head:
      ESPALIER_TRY(expect(op, "table columns", width(op.in[0]), weight(op.weights[0]).cols));
      return expect(op, "table rows", p_.vocabulary, weight(op.weights[0]).rows);
  }
  return fail(op, "unknown op");
}

Status Checker::run() {
  for (const ValueDecl& v : f_.values)
    if (v.width <= 0) return corrupt("program " + p_.family + ": value " + v.name + " has width " + std::to_string(v.width));
  for (const Port& in : f_.inputs)
    if (!in_range(in.value, f_.values.size())) return corrupt("program " + p_.family + ": input " + in.name + " names no value");
  int32_t segment = 0;
  for (const Op& op : f_.ops) {
    ESPALIER_TRY(check_ids(op));
    ESPALIER_TRY(check_reads(op));
    ESPALIER_TRY(check_shapes(op));
    if (op.segment < segment) return fail(op, "segments must not descend");
    segment = op.segment;
    for (ValueId v : op.out) {
      if (v == kNone) continue;
      if (written_by_[static_cast<size_t>(v)] != kNone) return fail(op, "its output is written twice");
      written_by_[static_cast<size_t>(v)] = op.segment;
    }
  }
  for (const Port& out : f_.outputs)
    if (!in_range(out.value, f_.values.size()) || written_by_[static_cast<size_t>(out.value)] != out.segment)
      return corrupt("program " + p_.family + ", function " + role_name(f_.role) + ": output " + out.name + " is not written in its segment");
  return {};
}

// Each state belongs to one op of a function, so that a call changes it once.
Status states_used_once(const Program& p, const Function& f) {
  std::vector<bool> used(p.states.size());
  for (const Op& op : f.ops) {
    if (op.state == kNone) continue;
    if (used[static_cast<size_t>(op.state)])
      return corrupt("program " + p.family + ", function " + role_name(f.role) + ": state " + p.states[static_cast<size_t>(op.state)].name + " is used by two ops");
    used[static_cast<size_t>(op.state)] = true;
  }
  return {};
}

}  // namespace

Status verify(const Program& program) {
  if (program.functions.empty()) return corrupt("program " + program.family + " has no functions");
  for (const WeightDecl& w : program.weights)
    if (w.rows <= 0 || w.cols <= 0) return corrupt("program " + program.family + ": weight " + w.name + " is empty");
  for (const Function& f : program.functions) {
    ESPALIER_TRY(Checker(program, f).run());
    ESPALIER_TRY(states_used_once(program, f));
  }
  return {};
}

}  // namespace espalier
