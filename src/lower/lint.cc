#include "lower/lint.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace espalier {
namespace {

// Order: that of kRules.
enum Rule { kRank, kBatch, kType, kLastAxis, kAxisLimit, kSubrange, kLinear, kScales, kLiteral, kSlice, kArgmax, kOffset, kSequences, kMask, kIndices, kRuleCount };

constexpr LintRule kRules[kRuleCount] = {
    {"rank", "a value has at most 5 axes"},
    {"batch", "the first axis of a value is 1"},
    {"type", "values are f16; i32 only leaves the program or is an offset; int8 weights are dequantised"},
    {"last-axis", "the last axis of a value is a multiple of 32 elements, 64 bytes"},
    {"axis-limit", "no axis is longer than the engine can address"},
    {"sub-range", "a maximum or its index over channels covers at most 2,000 entries"},
    {"linear-as-conv", "a matrix of weights is used by a 1x1 convolution"},
    {"int8-scales", "int8 weights have one f16 scale for each output"},
    {"literal", "a literal is finite in fp16 and does not become zero"},
    {"last-axis-slice", "no slice of the last axis starts behind 0 where the chip spoils large values"},
    {"argmax", "no argmax where the chip has none"},
    {"aligned-offset", "a block written at a run-time offset has a multiple of 32 rows"},
    {"one-sequence", "writes at a run-time offset serve one sequence: several need place or delta"},
    {"mask", "attention adds the mask input to its scores before the softmax"},
    {"head-indices", "the head's logits do not leave beside their maxima"},
};

class Linter {
 public:
  Linter(const LoweredProgram& p, const LintOptions& o) : p_(p), o_(o) {}

  std::vector<LintFinding> run() {
    for (const LoweredWeight& w : p_.weights) weight(w);
    for (const LoweredFunction& f : p_.functions) function(f);
    return std::move(found_);
  }

 private:
  void report(Rule rule, std::string op, std::string what) { found_.push_back({kRules[rule].name, f_ == nullptr ? std::string() : function_name(f_->spec), std::move(op), std::move(what)}); }
  const LoweredValue& value(ValueId v) const { return f_->values[static_cast<size_t>(v)]; }
  std::string name(size_t i) const {
    const PrimitiveOp& op = f_->ops[i];
    std::string text = "op " + std::to_string(i) + " " + op.name();
    return op.source == kNone ? text : text + " (" + f_->origins[static_cast<size_t>(op.source)] + ")";
  }

  void weight(const LoweredWeight& w) {
    for (int32_t d : w.shape)
      if (d > o_.axis_limit) report(kAxisLimit, "weight " + w.name, shape_text(w.shape) + " has an axis above " + std::to_string(o_.axis_limit));
    if (w.type != ScalarType::i8) return;
    const bool scaled = std::any_of(p_.weights.begin(), p_.weights.end(), [&](const LoweredWeight& s) {
      return s.part == LoweredWeight::Part::scales && s.source == w.source && s.first == w.first && s.rows == w.rows && s.type == ScalarType::f16;
    });
    if (!scaled) report(kScales, "weight " + w.name, "it has no f16 scales of its " + std::to_string(w.rows) + " outputs");
  }

  void function(const LoweredFunction& f) {
    f_ = &f;
    from_.assign(f.values.size(), nullptr);
    for (const PrimitiveOp& op : f.ops)
      if (op.out != kNone) from_[static_cast<size_t>(op.out)] = &op;
    for (const LoweredPort& in : f.inputs) shape_of("input " + in.name, value(in.value), value(in.value).type == ScalarType::i32);
    for (size_t i = 0; i < f.ops.size(); ++i) {
      const PrimitiveOp& op = f.ops[i];
      const bool is_constant = op.kind == Primitive::weight || op.kind == Primitive::literal || op.kind == Primitive::dequantise;
      if (op.out != kNone && !is_constant) shape_of(name(i), value(op.out), op.kind == Primitive::argmax || op.kind == Primitive::concat);
      rules_of(op, i);
    }
    ports();
    f_ = nullptr;
  }

  void shape_of(const std::string& who, const LoweredValue& v, bool may_be_index) {
    const Shape& s = v.shape;
    const std::string shape = shape_text(s);
    if (s.size() > 5) report(kRank, who, shape + " has " + std::to_string(s.size()) + " axes");
    if (s[0] != 1) report(kBatch, who, shape + " has a batch of " + std::to_string(s[0]));
    if (v.type == ScalarType::i8 || (v.type == ScalarType::i32 && !may_be_index)) report(kType, who, std::string("it gives ") + scalar_name(v.type));
    if (v.type == ScalarType::f16 && s.back() % 32 != 0) report(kLastAxis, who, "the last axis of " + shape + " is no multiple of 32");
    for (int32_t d : s)
      if (d > o_.axis_limit) report(kAxisLimit, who, shape + " has an axis above " + std::to_string(o_.axis_limit));
  }

  bool is_weight(ValueId v) const {
    const PrimitiveOp* op = from_[static_cast<size_t>(v)];
    return op != nullptr && (op->kind == Primitive::weight || op->kind == Primitive::dequantise);
  }

  void rules_of(const PrimitiveOp& op, size_t i) {
    switch (op.kind) {
      case Primitive::literal: {
        const float rounded = f16_to_f32(f32_to_f16(op.value));
        if (!std::isfinite(rounded) || (rounded == 0 && op.value != 0)) report(kLiteral, name(i), std::to_string(op.value) + " is " + std::to_string(rounded) + " in fp16");
        return;
      }
      case Primitive::matmul:
        if (is_weight(op.in[0]) || is_weight(op.in[1])) report(kLinear, name(i), "it multiplies by a weight");
        return;
      case Primitive::slice:
        if (!o_.exact_last_axis_slices && op.begin > 0 && static_cast<size_t>(op.axis) + 1 == value(op.in[0]).shape.size()) report(kSlice, name(i), "it starts at " + std::to_string(op.begin));
        return;
      case Primitive::update_block: block(op, i); return;
      case Primitive::softmax: masked(op, i); return;
      case Primitive::argmax:
        if (!o_.native_argmax) report(kArgmax, name(i), "the chip has no argmax");
        [[fallthrough]];
      case Primitive::reduce_max: subrange(op, i); return;
      default: return;
    }
  }

  void subrange(const PrimitiveOp& op, size_t i) {
    const int32_t n = value(op.in[0]).shape[static_cast<size_t>(op.axis)];
    if (op.axis == 1 && n > o_.subrange_limit) report(kSubrange, name(i), "it covers " + std::to_string(n) + " entries");
  }

  void block(const PrimitiveOp& op, size_t i) {
    const int32_t rows = value(op.in[1]).shape[static_cast<size_t>(op.axis)];
    if (rows % kBlockRows != 0) report(kOffset, name(i), "the block has " + std::to_string(rows) + " rows");
    if (o_.sequences > 1) report(kSequences, name(i), "the window holds " + std::to_string(o_.sequences) + " sequences");
  }

  void masked(const PrimitiveOp& op, size_t i) {
    const PrimitiveOp* scores = from_[static_cast<size_t>(op.in[0])];
    const bool adds = scores != nullptr && scores->kind == Primitive::add &&
                      std::any_of(scores->in.begin(), scores->in.end(), [&](ValueId v) { return value(v).name == "mask"; });
    if (!adds) report(kMask, name(i), "nothing masks the rows that it must not see");
  }

  void ports() {
    const auto has = [&](const char* start) { return std::any_of(f_->outputs.begin(), f_->outputs.end(), [&](const LoweredPort& p) { return p.name.starts_with(start); }); };
    if (has("logits.") && has("head.")) report(kIndices, "output head.max", "the function gives logits too");
  }

  const LoweredProgram& p_;
  const LintOptions& o_;
  const LoweredFunction* f_ = nullptr;
  std::vector<const PrimitiveOp*> from_;  // by value: the op that gives it
  std::vector<LintFinding> found_;
};

}  // namespace

std::span<const LintRule> lint_rules() { return kRules; }

std::vector<LintFinding> lint(const LoweredProgram& program, const LintOptions& options) { return Linter(program, options).run(); }

std::string text(const LintFinding& f) { return (f.function.empty() ? std::string() : f.function + ": ") + f.op + ": " + f.what + " [" + f.rule + "]"; }

}  // namespace espalier
