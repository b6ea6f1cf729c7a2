// Appends primitives to a lowered function: each method gives the value of one op, its shape inferred. Internal to lower.cc.
#pragma once

#include <map>

#include "lower/lowered.h"

namespace espalier::lowering {

class PrimitiveBuilder {
 public:
  PrimitiveBuilder(LoweredProgram& program, LoweredFunction& function) : p_(program), f_(function) {}

  void source(int32_t op) { source_ = op; }
  // The same name twice gives the same value.
  ValueId input(const std::string& name, Shape shape, ScalarType type = ScalarType::f16);
  void output(const std::string& name, ValueId v) { f_.outputs.push_back({name, v}); }

  ValueId weight(const LoweredWeight& w);  // loaded once a function
  ValueId literal(float value);
  ValueId dequantise(ValueId codes, ValueId scales) { return push({Primitive::dequantise, {codes, scales}}); }
  ValueId read_state(int32_t state);
  void write_state(int32_t state, ValueId v);
  ValueId unary(Primitive kind, ValueId x) { return push({kind, {x}}); }
  ValueId binary(Primitive kind, ValueId a, ValueId b) { return push({kind, {a, b}}); }
  ValueId along(Primitive kind, ValueId x, int32_t axis) { return push({kind, {x}, kNone, kNone, axis}); }
  ValueId reshape(ValueId x, Shape shape);
  ValueId transpose(ValueId x, std::vector<int32_t> order);
  ValueId slice(ValueId x, int32_t axis, int32_t begin, int32_t length);
  ValueId concat(std::vector<ValueId> parts, int32_t axis);
  ValueId update_block(ValueId x, ValueId block, ValueId offset, int32_t axis) { return push({Primitive::update_block, {x, block, offset}, kNone, kNone, axis}); }

  const Shape& shape(ValueId v) const { return f_.values[static_cast<size_t>(v)].shape; }
  // Writes of states go last, then whatever no output or state needs is dropped. The first op that did not fit, if any.
  Status finish();

 private:
  ValueId push(PrimitiveOp op, Shape wanted = {});
  void drop_unused();

  LoweredProgram& p_;
  LoweredFunction& f_;
  int32_t source_ = kNone;
  std::map<std::string, ValueId> inputs_;
  std::map<int32_t, ValueId> weights_, states_;
  std::vector<PrimitiveOp> writes_;
  Status status_;
};

}  // namespace espalier::lowering
