#include "lower/lower_builder.h"

#include <algorithm>

#include "lower/primitives.h"

namespace espalier::lowering {

ValueId PrimitiveBuilder::push(PrimitiveOp op, Shape wanted) {
  op.source = source_;
  const ValueId id = static_cast<ValueId>(f_.values.size());
  Result<LoweredValue> v = infer(p_, f_, op, wanted);
  if (!v.ok() && status_.ok()) status_ = Status(v.status()).with_context(std::string("lowering ") + op.name());
  LoweredValue value = v.ok() ? std::move(v).value() : LoweredValue{{}, ScalarType::f16, {1, 1, 1, 1}};
  value.name = op.name();
  f_.values.push_back(std::move(value));
  op.out = id;
  f_.ops.push_back(std::move(op));
  return id;
}

ValueId PrimitiveBuilder::input(const std::string& name, Shape shape, ScalarType type) {
  const auto [at, is_new] = inputs_.try_emplace(name, static_cast<ValueId>(f_.values.size()));
  if (is_new) {
    f_.values.push_back({name, type, std::move(shape)});
    f_.inputs.push_back({name, at->second});
  }
  return at->second;
}

ValueId PrimitiveBuilder::weight(const LoweredWeight& w) {
  const auto found = std::find(p_.weights.begin(), p_.weights.end(), w);
  const int32_t index = static_cast<int32_t>(found - p_.weights.begin());
  if (found == p_.weights.end()) p_.weights.push_back(w);
  const auto at = weights_.find(index);
  if (at != weights_.end()) return at->second;
  return weights_[index] = push({Primitive::weight, {}, kNone, index});
}

ValueId PrimitiveBuilder::literal(float value) {
  PrimitiveOp op{Primitive::literal, {}};
  op.value = value;
  return push(std::move(op));
}

ValueId PrimitiveBuilder::read_state(int32_t state) {
  const auto at = states_.find(state);
  if (at != states_.end()) return at->second;
  return states_[state] = push({Primitive::read_state, {}, kNone, state});
}

void PrimitiveBuilder::write_state(int32_t state, ValueId v) {
  PrimitiveOp op{Primitive::write_state, {v}, kNone, state};
  op.source = source_;
  writes_.push_back(std::move(op));
}

ValueId PrimitiveBuilder::reshape(ValueId x, Shape shape) { return push({Primitive::reshape, {x}}, std::move(shape)); }

ValueId PrimitiveBuilder::transpose(ValueId x, std::vector<int32_t> order) {
  PrimitiveOp op{Primitive::transpose, {x}};
  op.order = std::move(order);
  return push(std::move(op));
}

ValueId PrimitiveBuilder::slice(ValueId x, int32_t axis, int32_t begin, int32_t length) {
  PrimitiveOp op{Primitive::slice, {x}, kNone, kNone, axis, begin};
  Shape wanted = shape(x);
  if (static_cast<size_t>(axis) < wanted.size()) wanted[static_cast<size_t>(axis)] = length;
  return push(std::move(op), std::move(wanted));
}

ValueId PrimitiveBuilder::concat(std::vector<ValueId> parts, int32_t axis) {
  if (parts.size() == 1) return parts[0];
  return push({Primitive::concat, std::move(parts), kNone, kNone, axis});
}

Status PrimitiveBuilder::finish() {
  ESPALIER_TRY(status_);
  for (PrimitiveOp& op : writes_) f_.ops.push_back(std::move(op));
  drop_unused();
  return {};
}

void PrimitiveBuilder::drop_unused() {
  std::vector<bool> needed(f_.values.size());
  for (const LoweredPort& out : f_.outputs) needed[static_cast<size_t>(out.value)] = true;
  for (auto op = f_.ops.rbegin(); op != f_.ops.rend(); ++op)
    if (op->out == kNone || needed[static_cast<size_t>(op->out)])
      for (ValueId v : op->in) needed[static_cast<size_t>(v)] = true;
  std::vector<ValueId> moved(f_.values.size(), kNone);
  std::vector<LoweredValue> kept;
  for (size_t v = 0; v < needed.size(); ++v) {
    if (!needed[v]) continue;
    moved[v] = static_cast<ValueId>(kept.size());
    kept.push_back(std::move(f_.values[v]));
  }
  f_.values = std::move(kept);
  std::erase_if(f_.ops, [&](const PrimitiveOp& op) { return op.out != kNone && !needed[static_cast<size_t>(op.out)]; });
  std::erase_if(f_.inputs, [&](const LoweredPort& in) { return !needed[static_cast<size_t>(in.value)]; });
  for (PrimitiveOp& op : f_.ops) {
    for (ValueId& v : op.in) v = moved[static_cast<size_t>(v)];
    if (op.out != kNone) op.out = moved[static_cast<size_t>(op.out)];
  }
  for (LoweredPort& in : f_.inputs) in.value = moved[static_cast<size_t>(in.value)];
  for (LoweredPort& out : f_.outputs) out.value = moved[static_cast<size_t>(out.value)];
}

}  // namespace espalier::lowering
