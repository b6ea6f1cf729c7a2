#include "lower/primitives.h"

#include <algorithm>

namespace espalier {
namespace {

class Inference {
 public:
  Inference(const LoweredProgram& p, const LoweredFunction& f, const PrimitiveOp& op, const Shape& wanted)
      : program_(p), function_(f), op_(op), wanted_(wanted) {}

  Result<LoweredValue> run() {
    ESPALIER_TRY(check_count());
    switch (op_.kind) {
      case Primitive::weight: return weight();
      case Primitive::literal: return give({1, 1, 1, 1});
      case Primitive::dequantise: return dequantise();
      case Primitive::read_state: return read_state();
      case Primitive::write_state: return write_state();
      case Primitive::conv1x1: return conv1x1();
      case Primitive::matmul: return matmul();
      case Primitive::add: case Primitive::sub: case Primitive::mul: case Primitive::div: case Primitive::maximum: return broadcast();
      case Primitive::sigmoid: case Primitive::exp: case Primitive::rsqrt: return give(shape(0));
      case Primitive::softmax: return along_axis(false);
      case Primitive::reduce_sum: case Primitive::reduce_mean: case Primitive::reduce_max: case Primitive::argmax: return along_axis(true);
      case Primitive::reshape: return reshape();
      case Primitive::transpose: return transpose();
      case Primitive::slice: return slice();
      case Primitive::concat: return concat();
      case Primitive::update_block: return update_block();
    }
    return invalid("it is no primitive");
  }

 private:
  static constexpr int kAny = -1;  // one or more
  int expected_inputs() const {
    switch (op_.kind) {
      case Primitive::weight: case Primitive::literal: case Primitive::read_state: return 0;
      case Primitive::dequantise: case Primitive::conv1x1: case Primitive::matmul: case Primitive::add: case Primitive::sub:
      case Primitive::mul: case Primitive::div: case Primitive::maximum: return 2;
      case Primitive::update_block: return 3;
      case Primitive::concat: return kAny;
      default: return 1;
    }
  }
  Status check_count() const {
    const int n = expected_inputs();
    const size_t found = op_.in.size();
    if (n == kAny ? found == 0 : found != static_cast<size_t>(n))
      return invalid("it takes " + (n == kAny ? std::string("at least 1") : std::to_string(n)) + " inputs and has " + std::to_string(found));
    for (ValueId v : op_.in) {
      if (v < 0 || static_cast<size_t>(v) >= function_.values.size()) return invalid("an input is not a value of the function");
      if (value(v).shape.size() > 5 || value(v).shape.empty()) return invalid("an input has rank " + std::to_string(value(v).shape.size()));
    }
    return {};
  }

  const LoweredValue& value(ValueId v) const { return function_.values[static_cast<size_t>(v)]; }
  const Shape& shape(size_t i) const { return value(op_.in[i]).shape; }
  ScalarType type(size_t i) const { return value(op_.in[i]).type; }
  static Result<LoweredValue> give(Shape s, ScalarType t = ScalarType::f16) { return LoweredValue{{}, t, std::move(s)}; }
  Status mismatch(const char* what) const {
    std::string text = std::string(what) + ":";
    for (size_t i = 0; i < op_.in.size(); ++i) text += " " + shape_text(shape(i));
    return invalid(text);
  }
  bool has_axis() const { return op_.axis >= 0 && static_cast<size_t>(op_.axis) < shape(0).size(); }

  Result<LoweredValue> weight() const {
    if (op_.index < 0 || static_cast<size_t>(op_.index) >= program_.weights.size()) return invalid("its weight is not declared");
    const LoweredWeight& w = program_.weights[static_cast<size_t>(op_.index)];
    return give(w.shape, w.type);
  }
  Result<const LoweredState*> state() const {
    if (op_.index < 0 || static_cast<size_t>(op_.index) >= program_.states.size()) return invalid("its state is not declared");
    return &program_.states[static_cast<size_t>(op_.index)];
  }
  Result<LoweredValue> read_state() const {
    ESPALIER_ASSIGN(const LoweredState* s, state());
    return give(state_shape(*s, function_.spec));
  }
  Result<LoweredValue> write_state() const {
    ESPALIER_ASSIGN(const LoweredState* s, state());
    const Shape expected = state_shape(*s, function_.spec);
    if (shape(0) != expected) return invalid("state " + s->name + " has shape " + shape_text(expected) + ", the value " + shape_text(shape(0)));
    return give({});
  }
  Result<LoweredValue> dequantise() const {
    const bool fits = shape(0).size() == 4 && shape(1).size() == 4 && type(0) == ScalarType::i8 && shape(1) == Shape{shape(0)[0], 1, 1, 1};
    if (!fits) return mismatch("it takes int8 (O, I, 1, 1) and scales (O, 1, 1, 1)");
    return give(shape(0));
  }
  Result<LoweredValue> conv1x1() const {
    const Shape &x = shape(0), &w = shape(1);
    const bool fits = x.size() == 4 && w.size() == 4 && x[0] == 1 && x[2] == 1 && w[1] == x[1] && w[2] == 1 && w[3] == 1;
    if (!fits || type(1) != ScalarType::f16) return mismatch("it takes (1, I, 1, S) and f16 (O, I, 1, 1)");
    return give({1, w[0], 1, x[3]});
  }
  Result<LoweredValue> matmul() const {
    const Shape &a = shape(0), &b = shape(1);
    if (a.size() != b.size() || a.size() < 2 || a.back() != b[b.size() - 2]) return mismatch("inner extents differ");
    Shape out = a;
    for (size_t i = 0; i + 2 < a.size(); ++i) {
      if (a[i] != b[i] && a[i] != 1 && b[i] != 1) return mismatch("leading axes do not broadcast");
      out[i] = std::max(a[i], b[i]);
    }
    out.back() = b.back();
    return give(out);
  }
  Result<LoweredValue> broadcast() const {
    const Shape &a = shape(0), &b = shape(1);
    if (a.size() != b.size()) return mismatch("ranks differ");
    Shape out = a;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i] && a[i] != 1 && b[i] != 1) return mismatch("shapes do not broadcast");
      out[i] = std::max(a[i], b[i]);
    }
    return give(out);
  }
  Result<LoweredValue> along_axis(bool reduces) const {
    if (!has_axis()) return invalid("axis " + std::to_string(op_.axis) + " of " + shape_text(shape(0)));
    Shape out = shape(0);
    if (reduces) out[static_cast<size_t>(op_.axis)] = 1;
    return give(out, op_.kind == Primitive::argmax ? ScalarType::i32 : ScalarType::f16);
  }
  Result<LoweredValue> reshape() const {
    if (wanted_.empty() || wanted_.size() > 5 || elements(wanted_) != elements(shape(0)))
      return invalid(shape_text(shape(0)) + " does not have the elements of " + shape_text(wanted_));
    return give(wanted_, type(0));
  }
  Result<LoweredValue> transpose() const {
    Shape out;
    std::vector<bool> seen(shape(0).size());
    for (int32_t a : op_.order) {
      if (a < 0 || static_cast<size_t>(a) >= seen.size() || seen[static_cast<size_t>(a)]) return invalid("its order is no permutation of the axes");
      seen[static_cast<size_t>(a)] = true;
      out.push_back(shape(0)[static_cast<size_t>(a)]);
    }
    if (out.size() != seen.size()) return invalid("its order is no permutation of the axes");
    return give(out, type(0));
  }
  Result<LoweredValue> slice() const {
    if (!has_axis() || wanted_.size() != shape(0).size()) return invalid("axis " + std::to_string(op_.axis) + " of " + shape_text(shape(0)));
    const size_t axis = static_cast<size_t>(op_.axis);
    Shape out = shape(0);
    out[axis] = wanted_[axis];
    if (op_.begin < 0 || out[axis] < 1 || op_.begin > shape(0)[axis] - out[axis])
      return invalid("[" + std::to_string(op_.begin) + ", " + std::to_string(op_.begin + out[axis]) + ") of axis " + std::to_string(axis) + " of " + shape_text(shape(0)));
    return give(out, type(0));
  }
  Result<LoweredValue> concat() const {
    if (!has_axis()) return invalid("axis " + std::to_string(op_.axis) + " of " + shape_text(shape(0)));
    const size_t axis = static_cast<size_t>(op_.axis);
    Shape out = shape(0);
    for (size_t i = 1; i < op_.in.size(); ++i) {
      Shape other = shape(i);
      if (other.size() != out.size() || type(i) != type(0)) return mismatch("shapes or types differ");
      out[axis] += other[axis];
      other[axis] = out[axis];
      if (other != out) return mismatch("shapes differ off the axis");
    }
    return give(out, type(0));
  }
  Result<LoweredValue> update_block() const {
    if (!has_axis() || shape(1).size() != shape(0).size() || type(2) != ScalarType::i32 || elements(shape(2)) != 1) return mismatch("it takes x, the block and an i32 offset");
    Shape block = shape(1);
    const size_t axis = static_cast<size_t>(op_.axis);
    if (block[axis] > shape(0)[axis]) return mismatch("the block is longer than what it goes into");
    block[axis] = shape(0)[axis];
    if (block != shape(0)) return mismatch("the block differs off the axis");
    return give(shape(0));
  }

  const LoweredProgram& program_;
  const LoweredFunction& function_;
  const PrimitiveOp& op_;
  const Shape& wanted_;
};

}  // namespace

Result<LoweredValue> infer(const LoweredProgram& program, const LoweredFunction& function, const PrimitiveOp& op, const Shape& wanted) {
  return Inference(program, function, op, wanted).run();
}

}  // namespace espalier
