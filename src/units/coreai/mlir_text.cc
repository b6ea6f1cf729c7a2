#include "units/coreai/mlir_text.h"

#include <map>

#include "base/half.h"
#include "lower/port_names.h"

namespace espalier::coreai {
namespace {

constexpr const char* kToken = "!coreai.token";

std::string tensor(const Shape& shape, const char* element) {
  std::string text = "tensor<";
  for (int32_t d : shape) text += std::to_string(d) + "x";
  return text + element + ">";
}
std::string handle(const std::string& type) { return "!coreai.handle<" + type + ">"; }

// A value and its type as the text names them.
struct Named {
  std::string name, type;
};

std::string listed(const std::vector<Named>& values, std::string Named::*part) {
  std::string text;
  for (const Named& v : values) text += (text.empty() ? "" : ", ") + v.*part;
  return text;
}

class GraphText {
 public:
  GraphText(const LoweredProgram& p, const LoweredFunction& f) : p_(p), f_(f), token_(p.states.size()), input_(f.values.size()) {
    for (const LoweredPort& in : f_.inputs) input_[static_cast<size_t>(in.value)] = true;
  }

  Result<std::string> run() {
    for (int32_t s : states_of(f_)) {
      token_[static_cast<size_t>(s)] = fresh("t");
      line(token_[static_cast<size_t>(s)], "create_token", {}, kToken);
    }
    for (const PrimitiveOp& op : f_.ops) ESPALIER_TRY(print(op).with_context("function " + function_name(f_.spec) + ", " + op.name()));
    return head() + body_ + tail();
  }

 private:
  std::string fresh(const char* kind) { return std::string("%") + kind + std::to_string(next_++); }
  const LoweredValue& value(ValueId v) const { return f_.values[static_cast<size_t>(v)]; }
  // Indices are unsigned: argmax gives no other, and they only leave the program. An input of i32 is an offset, and signed.
  std::string type(ValueId v) const {
    const LoweredValue& x = value(v);
    if (x.type == ScalarType::f16) return tensor(x.shape, "f16");
    return tensor(x.shape, x.type == ScalarType::i8 ? "si8" : input_[static_cast<size_t>(v)] ? "si32" : "ui32");
  }
  Named use(ValueId v) const { return {"%v" + std::to_string(v), type(v)}; }
  std::string state_type(int32_t s) const { return tensor(state_shape(p_.states[static_cast<size_t>(s)], f_.spec), "f16"); }
  Named state(int32_t s) const { return {"%s" + std::to_string(s), handle(state_type(s))}; }

  void line(const std::string& results, const char* op, const std::vector<Named>& in, const std::string& type, const std::string& attributes = "") {
    body_ += "    " + results + " = \"coreai." + op + "\"(" + listed(in, &Named::name) + ")" + attributes + " : (" + listed(in, &Named::type) + ") -> " + type + " loc(unknown)\n";
  }
  Named constant(const std::string& dense, const std::string& type) {
    std::string& name = constants_[dense + type];
    if (name.empty()) {
      name = fresh("c");
      line(name, "constant", {}, type, " {value = " + dense + " : " + type + "}");
    }
    return {name, type};
  }
  Named numbers(const std::vector<int32_t>& values, const char* element) {
    std::string text;
    for (int32_t v : values) text += (text.empty() ? "" : ", ") + std::to_string(v);
    return constant("dense<[" + text + "]>", tensor({static_cast<int32_t>(values.size())}, element));
  }
  Named number(int32_t value, const char* element) { return constant("dense<" + std::to_string(value) + ">", tensor({}, element)); }

  void give(const PrimitiveOp& op, const char* name, std::vector<Named> extra = {}) {
    std::vector<Named> in;
    for (ValueId v : op.in) in.push_back(use(v));
    for (Named& n : extra) in.push_back(std::move(n));
    line(use(op.out).name, name, in, type(op.out));
  }

  Status print(const PrimitiveOp& op) {
    switch (op.kind) {
      case Primitive::weight: weight(op); return {};
      case Primitive::literal: literal(op); return {};
      case Primitive::dequantise: dequantise(op); return {};
      case Primitive::read_state: read_state(op); return {};
      case Primitive::write_state: write_state(op); return {};
      case Primitive::conv1x1: give(op, "conv2d", {numbers({1, 1}, "ui32"), numbers({1, 1}, "ui32"), number(1, "ui32")}); return {};
      case Primitive::matmul: give(op, "decomposable.broadcasting_batch_matmul"); return {};
      case Primitive::add: give(op, "decomposable.broadcasting_add"); return {};
      case Primitive::sub: give(op, "decomposable.broadcasting_sub"); return {};
      case Primitive::mul: give(op, "decomposable.broadcasting_mul"); return {};
      case Primitive::div: give(op, "decomposable.broadcasting_divide"); return {};
      case Primitive::maximum: give(op, "decomposable.broadcasting_maximum"); return {};
      case Primitive::sigmoid: case Primitive::exp: case Primitive::rsqrt: give(op, op.name()); return {};
      case Primitive::softmax: case Primitive::argmax: give(op, op.name(), {number(op.axis, "si32")}); return {};
      case Primitive::reduce_sum: case Primitive::reduce_mean: case Primitive::reduce_max: give(op, op.name(), {numbers({op.axis}, "si32")}); return {};
      case Primitive::reshape: give(op, "reshape", {numbers(value(op.out).shape, "si32")}); return {};
      case Primitive::transpose: give(op, "transpose", {numbers(op.order, "ui32")}); return {};
      case Primitive::slice: slice(op); return {};
      case Primitive::concat: concat(op); return {};
      case Primitive::update_block: update_block(op); return {};
    }
    return unsupported("Core AI has no form for it", op.name());
  }

  void weight(const PrimitiveOp& op) {
    const std::string t = type(op.out);
    line(use(op.out).name, "constant", {}, t, " {value = dense_resource<\"w" + std::to_string(op.index) + "\"> : " + t + "}");
  }
  void literal(const PrimitiveOp& op) {
    char hex[5];
    const uint16_t bits = f32_to_f16(op.value);
    for (int i = 0; i < 4; ++i) hex[i] = "0123456789ABCDEF"[bits >> (i < 2 ? (i == 0 ? 4 : 0) : (i == 2 ? 12 : 8)) & 15];
    hex[4] = 0;
    const std::string t = type(op.out);
    line(use(op.out).name, "constant", {}, t, std::string(" {value = dense<\"0x") + hex + "\"> : " + t + "}");
  }
  void dequantise(const PrimitiveOp& op) {
    const Shape& scales = value(op.in[1]).shape;
    give(op, "blockwise_shift_scale", {constant("dense<0>", tensor(scales, "si8")), constant("dense<0.0>", tensor(scales, "f16"))});
  }
  void read_state(const PrimitiveOp& op) {
    std::string& token = token_[static_cast<size_t>(op.index)];
    const std::string next = fresh("t");
    line(use(op.out).name + ", " + next, "read_handle", {state(op.index), {token, kToken}}, "(" + type(op.out) + ", " + kToken + ")");
    token = next;
  }
  void write_state(const PrimitiveOp& op) {
    std::string& token = token_[static_cast<size_t>(op.index)];
    const std::string next = fresh("t");
    line(next, "write_handle", {state(op.index), use(op.in[0]), {token, kToken}}, kToken);
    token = next;
  }
  void slice(const PrimitiveOp& op) {
    const Shape& shape = value(op.in[0]).shape;
    std::vector<int32_t> begin(shape.size(), 0), end = shape;
    begin[static_cast<size_t>(op.axis)] = op.begin;
    end[static_cast<size_t>(op.axis)] = op.begin + value(op.out).shape[static_cast<size_t>(op.axis)];
    give(op, "slice", {numbers(begin, "si32"), numbers(end, "si32"), numbers(Shape(shape.size(), 1), "si32")});
  }
  void concat(const PrimitiveOp& op) {
    std::vector<Named> in = {number(op.axis, "si32")};
    for (ValueId v : op.in) in.push_back(use(v));
    line(use(op.out).name, "concat", in, type(op.out));
  }
  // Bounds are vectors that hold the offset at the axis: zeros, offset, zeros; and extents, offset + rows, extents.
  void update_block(const PrimitiveOp& op) {
    const Shape& shape = value(op.in[0]).shape;
    const size_t axis = static_cast<size_t>(op.axis);
    const std::string one = tensor({1}, "si32"), all = tensor({static_cast<int32_t>(shape.size())}, "si32");
    const Named first{fresh("b"), one}, last{fresh("b"), one}, begin{fresh("b"), all}, end{fresh("b"), all};
    line(first.name, "reshape", {use(op.in[2]), numbers({1}, "si32")}, one);
    line(last.name, "decomposable.broadcasting_add", {first, numbers({value(op.in[1]).shape[axis]}, "si32")}, one);
    const auto vector = [&](const Named& to, const Named& at, const Shape& around) {
      std::vector<Named> in = {number(0, "si32")};
      if (axis > 0) in.push_back(numbers({around.begin(), around.begin() + op.axis}, "si32"));
      in.push_back(at);
      if (axis + 1 < around.size()) in.push_back(numbers({around.begin() + op.axis + 1, around.end()}, "si32"));
      line(to.name, "concat", in, to.type);
    };
    vector(begin, first, Shape(shape.size(), 0));
    vector(end, last, shape);
    line(use(op.out).name, "slice_update", {use(op.in[0]), begin, end, numbers(Shape(shape.size(), 1), "si32"), use(op.in[1])}, type(op.out));
  }

  std::string head() const {
    std::string in, out;
    const auto add = [](std::string& text, const std::string& what, const std::string& name) { text += (text.empty() ? "" : ", ") + what + " {coreai.name = \"" + name + "\"}"; };
    for (int32_t s : states_of(f_)) {
      const std::string name = port_name(p_.states[static_cast<size_t>(s)].name);
      add(in, state(s).name + ": " + state(s).type, name);
      add(out, kToken, name);
    }
    for (const LoweredPort& port : f_.inputs) add(in, use(port.value).name + ": " + type(port.value), port_name(port.name));
    for (const LoweredPort& port : f_.outputs) add(out, type(port.value), output_name(p_, port));
    return "  coreai.graph @" + function_name(f_.spec) + "(" + in + ") -> (" + out + ") {\n";
  }
  std::string tail() const {
    std::vector<Named> results;
    for (int32_t s : states_of(f_)) results.push_back({token_[static_cast<size_t>(s)], kToken});
    for (const LoweredPort& port : f_.outputs) results.push_back(use(port.value));
    return "    coreai.output " + listed(results, &Named::name) + " : " + listed(results, &Named::type) + "\n  }\n";
  }

  const LoweredProgram& p_;
  const LoweredFunction& f_;
  std::string body_;
  std::vector<std::string> token_;  // by state: the last one
  std::vector<bool> input_;         // by value
  std::map<std::string, std::string> constants_;
  int next_ = 0;
};

}  // namespace

Result<std::string> mlir_text(const LoweredProgram& program) {
  std::string text = "module {\n";
  for (const LoweredFunction& f : program.functions) {
    if (!is_exported(f)) continue;
    ESPALIER_ASSIGN(const std::string graph, GraphText(program, f).run());
    text += graph;
  }
  return text + "}\n";
}

}  // namespace espalier::coreai
