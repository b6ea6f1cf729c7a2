#include "lower/lowered.h"

#include <algorithm>
#include <charconv>

#include "lower/primitives.h"

namespace espalier {

int64_t elements(const Shape& shape) {
  int64_t n = 1;
  for (int32_t d : shape) n *= d;
  return n;
}

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

const char* scalar_name(ScalarType type) {
  constexpr const char* kNames[] = {"f16", "i8", "i32"};
  return kNames[static_cast<size_t>(type)];
}

const char* kv_form_name(KvForm form) {
  constexpr const char* kNames[] = {"place", "delta", "dynamic"};
  return kNames[static_cast<size_t>(form)];
}

std::string function_name(const FunctionSpec& spec) {
  constexpr const char* kRows[] = {"none", "chosen", "all"};
  constexpr const char* kForms[] = {"maxima", "logits"};
  std::string name = std::string(role_name(spec.role)) + "_" + std::to_string(spec.rows) + "_" + std::to_string(spec.bucket) + "_" + kRows[static_cast<size_t>(spec.head)];
  if (spec.head != HeadRows::none) name += std::string("_") + kForms[static_cast<size_t>(spec.form)];
  return name;
}

int32_t LoweredProgram::find(const FunctionSpec& spec) const {
  for (size_t i = 0; i < functions.size(); ++i)
    if (functions[i].spec == spec) return static_cast<int32_t>(i);
  return kNone;
}

Shape state_shape(const LoweredState& state, const FunctionSpec& spec) {
  return {1, state.channels, 1, state.is_kv ? spec.bucket : kFrameSlots};
}

// ---- text

namespace {

std::string number(double d) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::general, 9).ptr};
}

std::string value_ref(const LoweredFunction& f, ValueId v) { return "%" + std::to_string(v) + ":" + f.values[static_cast<size_t>(v)].name; }

bool has_axis(Primitive p) {
  return p == Primitive::softmax || (p >= Primitive::reduce_sum && p <= Primitive::argmax) || p == Primitive::slice || p == Primitive::concat || p == Primitive::update_block;
}

std::string op_line(const LoweredProgram& p, const LoweredFunction& f, const PrimitiveOp& op) {
  std::string line = "  ";
  if (op.out != kNone) {
    const LoweredValue& v = f.values[static_cast<size_t>(op.out)];
    line += value_ref(f, op.out) + " " + scalar_name(v.type) + shape_text(v.shape) + " = ";
  }
  line += op.name();
  for (ValueId v : op.in) line += " " + value_ref(f, v);
  if (op.kind == Primitive::weight) line += " " + p.weights[static_cast<size_t>(op.index)].name;
  if (op.kind == Primitive::read_state || op.kind == Primitive::write_state) line += " @" + p.states[static_cast<size_t>(op.index)].name;
  if (has_axis(op.kind)) line += " axis " + std::to_string(op.axis);
  if (op.kind == Primitive::slice) line += " from " + std::to_string(op.begin);
  if (op.kind == Primitive::literal) line += " " + number(static_cast<double>(op.value));
  if (op.kind == Primitive::transpose) line += " order " + shape_text(op.order);
  return line + (op.source == kNone ? "" : "   ; " + f.origins[static_cast<size_t>(op.source)]) + "\n";
}

}  // namespace

std::string dump(const LoweredProgram& p) {
  std::string text = "lowered " + p.family + " hidden " + std::to_string(p.hidden) + " vocabulary " + std::to_string(p.vocabulary) + " subrange " +
                     std::to_string(p.subrange) + " kv " + kv_form_name(p.kv) + "\n";
  for (const LoweredWeight& w : p.weights) text += "weight " + w.name + " " + scalar_name(w.type) + shape_text(w.shape) + "\n";
  for (const LoweredState& s : p.states) text += "state " + s.name + (s.is_kv ? " kv " : " frames ") + std::to_string(s.channels) + "\n";
  for (const LoweredFunction& f : p.functions) {
    text += "function " + function_name(f.spec) + "\n";
    for (const LoweredPort& in : f.inputs) {
      const LoweredValue& v = f.values[static_cast<size_t>(in.value)];
      text += "  input " + in.name + " -> " + value_ref(f, in.value) + " " + scalar_name(v.type) + shape_text(v.shape) + "\n";
    }
    for (const PrimitiveOp& op : f.ops) text += op_line(p, f, op);
    for (const LoweredPort& out : f.outputs) text += "  output " + out.name + " = " + value_ref(f, out.value) + "\n";
  }
  return text;
}

// ---- verification

namespace {

class LoweredChecker {
 public:
  LoweredChecker(const LoweredProgram& p, const LoweredFunction& f) : p_(p), f_(f), written_(f.values.size()), states_(p.states.size()) {}

  Status run() {
    for (const LoweredPort& in : f_.inputs) ESPALIER_TRY(write(in.value, "input " + in.name));
    for (size_t i = 0; i < f_.ops.size(); ++i) ESPALIER_TRY(check_op(f_.ops[i], i));
    for (size_t i = 0; i < f_.outputs.size(); ++i) {
      const LoweredPort& out = f_.outputs[i];
      if (!is_written(out.value)) return fail("output " + out.name + " is never written");
      for (size_t j = 0; j < i; ++j)
        if (f_.outputs[j].name == out.name) return fail("output " + out.name + " occurs twice");
    }
    return {};
  }

 private:
  Status fail(const std::string& what) const { return corrupt("lowered " + p_.family + ", function " + function_name(f_.spec) + ": " + what); }
  std::string where(const PrimitiveOp& op, size_t i) const {
    std::string text = "op " + std::to_string(i) + " " + op.name();
    if (op.source >= 0 && static_cast<size_t>(op.source) < f_.origins.size()) text += " (" + f_.origins[static_cast<size_t>(op.source)] + ")";
    return text;
  }
  bool is_written(ValueId v) const { return v >= 0 && static_cast<size_t>(v) < written_.size() && written_[static_cast<size_t>(v)]; }
  Status write(ValueId v, const std::string& who) {
    if (v < 0 || static_cast<size_t>(v) >= written_.size()) return fail(who + ": its value does not exist");
    if (written_[static_cast<size_t>(v)]) return fail(who + ": value " + std::to_string(v) + " is written twice");
    written_[static_cast<size_t>(v)] = true;
    return {};
  }
  Status check_op(const PrimitiveOp& op, size_t i) {
    const std::string at = where(op, i);
    if (op.kind == Primitive::write_state) ended_ = true;
    else if (ended_) return fail(at + ": it stands behind a write of a state");
    for (ValueId v : op.in)
      if (!is_written(v)) return fail(at + ": value " + std::to_string(v) + " is read before it is written");
    const bool gives = op.kind != Primitive::write_state;
    if (gives) ESPALIER_TRY(write(op.out, at));
    const Shape none;
    const Result<LoweredValue> found = infer(p_, f_, op, gives ? f_.values[static_cast<size_t>(op.out)].shape : none);
    if (!found.ok()) return fail(at + ": " + found.status().message());
    if (!gives) return check_write(op, at);
    const LoweredValue& declared = f_.values[static_cast<size_t>(op.out)];
    if (found->shape != declared.shape || found->type != declared.type)
      return fail(at + ": value " + declared.name + " is declared as " + scalar_name(declared.type) + shape_text(declared.shape) + " and is " +
                  scalar_name(found->type) + shape_text(found->shape));
    return {};
  }
  Status check_write(const PrimitiveOp& op, const std::string& at) {
    if (states_[static_cast<size_t>(op.index)]) return fail(at + ": state " + p_.states[static_cast<size_t>(op.index)].name + " is written twice");
    states_[static_cast<size_t>(op.index)] = true;
    return {};
  }

  const LoweredProgram& p_;
  const LoweredFunction& f_;
  std::vector<bool> written_, states_;
  bool ended_ = false;
};

}  // namespace

Status verify(const LoweredProgram& program) {
  for (const LoweredFunction& f : program.functions) ESPALIER_TRY(LoweredChecker(program, f).run());
  return {};
}

}  // namespace espalier
