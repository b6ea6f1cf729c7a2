// Field numbers are those of MIL.proto in apple/coremltools.
#include "units/coreml/mil_function.h"

#include <map>

#include "base/half.h"
#include "lower/port_names.h"

namespace espalier::coreml {
namespace {

constexpr const char* kOpset = "CoreML8";
enum DataType { kBool = 1, kString = 2, kFloat16 = 10, kInt8 = 21, kInt32 = 23 };

Message tensor_type(const Shape& shape, DataType type) {
  Message t;
  t.number(1, type);
  if (!shape.empty()) t.number(2, shape.size());
  for (int32_t d : shape) t.message(3, Message().message(1, Message().number(1, static_cast<uint64_t>(d))));
  return Message().message(1, t);
}
// A value that stands in the program: its type, and its elements in the field for their kind.
struct Constant {
  Message type, value;
};
Constant immediate(const Shape& shape, DataType type, int field, const Message& elements) {
  const Message t = tensor_type(shape, type);
  return {t, Message().message(2, t).message(3, Message().message(1, Message().message(field, elements)))};
}
Constant number(int32_t v) { return immediate({}, kInt32, 2, Message().bytes(1, Message().varint(static_cast<uint64_t>(v)).data())); }
Constant numbers(const std::vector<int32_t>& values) {
  Message packed;
  for (int32_t v : values) packed.varint(static_cast<uint64_t>(v));
  return immediate({static_cast<int32_t>(values.size())}, kInt32, 2, Message().bytes(1, packed.data()));
}
Constant boolean(bool v) { return immediate({}, kBool, 3, Message().bytes(1, std::string(1, v ? '\1' : '\0'))); }
Constant text(std::string_view v) { return immediate({}, kString, 4, Message().bytes(1, v)); }
Constant half(const Shape& shape, float v) {
  const uint16_t bits = f32_to_f16(v);
  return immediate(shape, kFloat16, 7, Message().bytes(1, std::string{static_cast<char>(bits & 255), static_cast<char>(bits >> 8)}));
}
Message named(std::string_view name, const Message& type) { return Message().bytes(1, name).message(2, type); }

class FunctionWriter {
 public:
  FunctionWriter(const LoweredProgram& p, const LoweredFunction& f, const std::vector<uint64_t>& offset_of)
      : p_(p), f_(f), offset_of_(offset_of), names_(f.values.size()), in_file_(f.values.size()) {}

  Result<Message> run() {
    name_values();
    for (const PrimitiveOp& op : f_.ops)
      if (op.kind == Primitive::dequantise)
        for (ValueId v : op.in) in_file_[static_cast<size_t>(v)] = true;
    for (const PrimitiveOp& op : f_.ops) ESPALIER_TRY(write(op).with_context("function " + function_name(f_.spec) + ", " + op.name()));
    for (const LoweredPort& out : f_.outputs) output(out);
    Message function;
    for (const LoweredPort& in : f_.inputs) function.message(1, named(name(in.value), type(in.value)));
    for (int32_t s : states_of(f_)) {
      const Message array = tensor_type(state_shape(p_.states[static_cast<size_t>(s)], f_.spec), kFloat16);
      function.message(1, named(state_name(s), Message().message(5, Message().message(1, array))));
    }
    for (const LoweredPort& out : f_.outputs) block_.bytes(2, output_name(p_, out));
    return function.bytes(2, kOpset).entry(3, kOpset, block_);
  }

 private:
  using Argument = std::pair<const char*, Message>;

  // Inputs by their own name, a value that is one output by that output's; all others by number.
  void name_values() {
    for (size_t v = 0; v < names_.size(); ++v) names_[v] = "v" + std::to_string(v);
    for (const LoweredPort& in : f_.inputs) names_[static_cast<size_t>(in.value)] = port_name(in.name);
    for (const LoweredPort& out : f_.outputs) {
      std::string& n = names_[static_cast<size_t>(out.value)];
      if (n == "v" + std::to_string(out.value)) n = output_name(p_, out);
    }
  }
  void output(const LoweredPort& out) {
    const std::string wanted = output_name(p_, out);
    if (name(out.value) != wanted) emit("identity", {{"x", use(out.value)}}, wanted, type(out.value));
  }

  const LoweredValue& value(ValueId v) const { return f_.values[static_cast<size_t>(v)]; }
  const std::string& name(ValueId v) const { return names_[static_cast<size_t>(v)]; }
  std::string state_name(int32_t s) const { return port_name(p_.states[static_cast<size_t>(s)].name); }
  static DataType data_type(ScalarType t) { return t == ScalarType::f16 ? kFloat16 : t == ScalarType::i8 ? kInt8 : kInt32; }
  Message type(ValueId v) const { return tensor_type(value(v).shape, data_type(value(v).type)); }
  static Message use(const std::string& name) { return Message().message(1, Message().bytes(1, name)); }
  Message use(ValueId v) const { return use(name(v)); }

  void emit(const char* kind, const std::vector<Argument>& arguments, const std::string& out, const Message& type) {
    Message op;
    op.bytes(1, kind);
    for (const auto& [parameter, argument] : arguments) op.entry(2, parameter, argument);
    block_.message(3, op.message(3, named(out, type)).entry(5, "name", text(out).value));
  }
  void give(const PrimitiveOp& op, const char* kind, const std::vector<Argument>& arguments) { emit(kind, arguments, name(op.out), type(op.out)); }
  void constant(const std::string& name, const Constant& c) {
    block_.message(3, Message().bytes(1, "const").message(3, named(name, c.type)).entry(5, "val", c.value).entry(5, "name", text(name).value));
  }
  // A constant as an argument, written once for each value of it.
  Message use(const Constant& c) {
    std::string& name = constants_[c.value.data()];
    if (name.empty()) {
      name = "c" + std::to_string(constants_.size());
      constant(name, c);
    }
    return use(name);
  }
  // A weight where it lies in the file.
  Constant stored(ValueId v) {
    int32_t index = kNone;
    for (const PrimitiveOp& op : f_.ops)
      if (op.out == v) index = op.index;
    const Message file = Message().bytes(1, "@model_path/weights/weight.bin").number(2, offset_of_[static_cast<size_t>(index)]);
    return {type(v), Message().message(2, type(v)).message(5, file)};
  }
  static Message literal(const Constant& c) { return Message().message(1, Message().message(2, c.value)); }

  Status write(const PrimitiveOp& op) {
    const auto x = [&](size_t i) { return use(op.in[i]); };
    const auto axis = [&] { return use(number(op.axis)); };
    const auto keep = [&] { return use(boolean(true)); };
    switch (op.kind) {
      case Primitive::weight:
        if (!in_file_[static_cast<size_t>(op.out)]) constant(name(op.out), stored(op.out));
        return {};
      case Primitive::literal: constant(name(op.out), half(value(op.out).shape, op.value)); return {};
      case Primitive::dequantise: give(op, "constexpr_blockwise_shift_scale", {{"data", literal(stored(op.in[0]))}, {"scale", literal(stored(op.in[1]))}}); return {};
      case Primitive::read_state: give(op, "read_state", {{"input", use(state_name(op.index))}}); return {};
      case Primitive::write_state: write_state(op); return {};
      case Primitive::conv1x1: conv(op); return {};
      case Primitive::matmul: {
        const Message no = use(boolean(false));
        give(op, "matmul", {{"x", x(0)}, {"y", x(1)}, {"transpose_x", no}, {"transpose_y", no}});
        return {};
      }
      case Primitive::add: case Primitive::sub: case Primitive::mul: case Primitive::maximum: give(op, op.name(), {{"x", x(0)}, {"y", x(1)}}); return {};
      case Primitive::div: give(op, "real_div", {{"x", x(0)}, {"y", x(1)}}); return {};
      case Primitive::sigmoid: case Primitive::exp: give(op, op.name(), {{"x", x(0)}}); return {};
      case Primitive::rsqrt: give(op, "rsqrt", {{"x", x(0)}, {"epsilon", use(half({}, 0))}}); return {};
      case Primitive::softmax: give(op, "softmax", {{"x", x(0)}, {"axis", axis()}}); return {};
      case Primitive::reduce_sum: case Primitive::reduce_mean: case Primitive::reduce_max:
        give(op, op.name(), {{"x", x(0)}, {"axes", use(numbers({op.axis}))}, {"keep_dims", keep()}});
        return {};
      case Primitive::argmax: argmax(op); return {};
      case Primitive::reshape: give(op, "reshape", {{"x", x(0)}, {"shape", use(numbers(value(op.out).shape))}}); return {};
      case Primitive::transpose: give(op, "transpose", {{"x", x(0)}, {"perm", use(numbers(op.order))}}); return {};
      case Primitive::slice: slice(op); return {};
      case Primitive::concat: concat(op); return {};
      case Primitive::update_block: update_block(op); return {};
    }
    return unsupported("Core ML has no form for it", op.name());
  }

  void write_state(const PrimitiveOp& op) {
    const std::string label = "write_" + state_name(op.index);
    block_.message(3, Message().bytes(1, "write_state").entry(2, "input", use(state_name(op.index))).entry(2, "data", use(op.in[0])).entry(5, "name", text(label).value));
  }
  void conv(const PrimitiveOp& op) {
    const Message valid = use(text("valid")), ones = use(numbers({1, 1})), zeros = use(numbers({0, 0, 0, 0})), one = use(number(1));
    give(op, "conv", {{"x", use(op.in[0])}, {"weight", use(op.in[1])}, {"pad_type", valid}, {"strides", ones}, {"dilations", ones}, {"pad", zeros}, {"groups", one}});
  }
  void argmax(const PrimitiveOp& op) {
    const Message axis = use(number(op.axis)), keep = use(boolean(true)), type = use(text("int32"));
    give(op, "reduce_argmax", {{"x", use(op.in[0])}, {"axis", axis}, {"keep_dims", keep}, {"output_dtype", type}});
  }
  void slice(const PrimitiveOp& op) {
    const Shape& shape = value(op.in[0]).shape;
    std::vector<int32_t> begin(shape.size(), 0), end = shape;
    begin[static_cast<size_t>(op.axis)] = op.begin;
    end[static_cast<size_t>(op.axis)] = op.begin + value(op.out).shape[static_cast<size_t>(op.axis)];
    const Message first = use(numbers(begin)), last = use(numbers(end));
    give(op, "slice_by_index", {{"x", use(op.in[0])}, {"begin", first}, {"end", last}});
  }
  std::vector<Argument> side_by_side(const std::vector<std::string>& parts, int32_t axis) {
    Message values;
    for (const std::string& part : parts) values.message(1, Message().bytes(1, part));
    const Message at = use(number(axis)), no = use(boolean(false));
    return {{"values", values}, {"axis", at}, {"interleave", no}};
  }
  void concat(const PrimitiveOp& op) {
    std::vector<std::string> parts;
    for (ValueId v : op.in) parts.push_back(name(v));
    give(op, "concat", side_by_side(parts, op.axis));
  }
  // Bounds are vectors that hold the offset at the axis: zeros, offset, zeros; and extents, offset + rows, extents.
  void update_block(const PrimitiveOp& op) {
    const Shape& shape = value(op.in[0]).shape;
    const size_t axis = static_cast<size_t>(op.axis);
    const std::string base = name(op.out);
    const Message one = tensor_type({1}, kInt32), all = tensor_type({static_cast<int32_t>(shape.size())}, kInt32);
    emit("reshape", {{"x", use(op.in[2])}, {"shape", use(numbers({1}))}}, base + "_first", one);
    emit("add", {{"x", use(base + "_first")}, {"y", use(numbers({value(op.in[1]).shape[axis]}))}}, base + "_last", one);
    const auto vector = [&](const std::string& out, const std::string& at, const Shape& around) {
      std::vector<std::string> parts;
      const auto piece = [&](size_t from, size_t to) {
        const std::string part = out + "_" + std::to_string(from);
        if (from == to) return;
        constant(part, numbers({around.begin() + static_cast<int32_t>(from), around.begin() + static_cast<int32_t>(to)}));
        parts.push_back(part);
      };
      piece(0, axis);
      parts.push_back(at);
      piece(axis + 1, around.size());
      emit("concat", side_by_side(parts, 0), out, all);
    };
    vector(base + "_begin", base + "_first", Shape(shape.size(), 0));
    vector(base + "_end", base + "_last", shape);
    give(op, "slice_update", {{"x", use(op.in[0])}, {"update", use(op.in[1])}, {"begin", use(base + "_begin")}, {"end", use(base + "_end")}});
  }

  const LoweredProgram& p_;
  const LoweredFunction& f_;
  const std::vector<uint64_t>& offset_of_;
  Message block_;
  std::vector<std::string> names_;
  std::vector<bool> in_file_;  // by value: an argument of dequantise, which takes it from the file itself
  std::map<std::string, std::string> constants_;
};

}  // namespace

Result<Message> mil_function(const LoweredProgram& program, const LoweredFunction& function, const std::vector<uint64_t>& offset_of) {
  return FunctionWriter(program, function, offset_of).run();
}

}  // namespace espalier::coreml
