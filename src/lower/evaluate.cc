#include "lower/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/thread_team.h"
#include "lower/evaluate_ops.h"

namespace espalier {
namespace {

using evaluating::View;

// One run of one function.
class Run {
 public:
  Run(const LoweredProgram& p, int32_t number, const LoweredTensors& tensors, const EvaluateOptions& options, ThreadTeam& team)
      : program_(p), number_(number), f_(p.functions[static_cast<size_t>(number)]), tensors_(tensors), options_(options), team_(team), data_(f_.values.size()), borrowed_(f_.values.size()) {}

  Status load(std::span<const NamedValues> inputs, std::span<std::vector<float>> states) {
    if (states.size() != program_.states.size()) return invalid("evaluate: " + std::to_string(states.size()) + " states, expected " + std::to_string(program_.states.size()));
    for (size_t s = 0; s < states.size(); ++s)
      ESPALIER_TRY(check_size("state " + program_.states[s].name, states[s].size(), state_shape(program_.states[s], f_.spec)));
    for (const LoweredPort& port : f_.inputs) {
      const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const NamedValues& v) { return v.name == port.name; });
      if (found == inputs.end()) return invalid("evaluate: input " + port.name + " is missing");
      const LoweredValue& value = f_.values[static_cast<size_t>(port.value)];
      ESPALIER_TRY(check_size("input " + port.name, found->data.size(), value.shape));
      data_[static_cast<size_t>(port.value)] = found->data;
      RangeCount unused;
      if (rounds() && value.type == ScalarType::f16) evaluating::round_f16(data_[static_cast<size_t>(port.value)], options_.flush_below, unused);
    }
    return {};
  }

  void run(std::span<std::vector<float>> states, std::vector<RangeCount>& counts) {
    const std::vector<size_t> last = last_reads();
    for (size_t i = 0; i < f_.ops.size(); ++i) {
      const PrimitiveOp& op = f_.ops[i];
      if (op.kind == Primitive::write_state) {
        const View v = view(op.in[0]);
        writes_.push_back({op.index, std::vector<float>(v.data, v.data + elements(*v.shape))});
      } else {
        evaluate(op, states);
        if (options_.observe) options_.observe(number_, i, std::span(view(op.out).data, static_cast<size_t>(elements(*view(op.out).shape))));
        const bool moves = op.kind == Primitive::weight || op.kind == Primitive::read_state;
        if (rounds() && !moves && f_.values[static_cast<size_t>(op.out)].type == ScalarType::f16) evaluating::round_f16(data_[static_cast<size_t>(op.out)], options_.flush_below, counts[i]);
      }
      for (ValueId v : op.in)
        if (last[static_cast<size_t>(v)] == i) data_[static_cast<size_t>(v)] = {};
    }
  }

  // Last: until then views of the old states stand.
  void write_states(std::span<std::vector<float>> states) {
    for (auto& [state, data] : writes_) states[static_cast<size_t>(state)] = std::move(data);
  }

  void outputs(std::vector<NamedValues>& out) {
    out.clear();
    for (const LoweredPort& port : f_.outputs) {
      const View v = view(port.value);
      out.push_back({port.name, std::vector<float>(v.data, v.data + elements(*v.shape))});
    }
  }

 private:
  bool rounds() const { return options_.arithmetic != Arithmetic::f32; }
  static Status check_size(const std::string& what, size_t found, const Shape& shape) {
    if (static_cast<int64_t>(found) == elements(shape)) return {};
    return invalid("evaluate: " + what + " has " + std::to_string(found) + " values, expected " + shape_text(shape));
  }
  View view(ValueId v) const {
    const size_t i = static_cast<size_t>(v);
    return {borrowed_[i] != nullptr ? borrowed_[i] : data_[i].data(), &f_.values[i].shape};
  }
  std::vector<size_t> last_reads() const {
    std::vector<size_t> last(f_.values.size(), 0);
    for (size_t i = 0; i < f_.ops.size(); ++i)
      for (ValueId v : f_.ops[i].in) last[static_cast<size_t>(v)] = i;
    for (const LoweredPort& out : f_.outputs) last[static_cast<size_t>(out.value)] = f_.ops.size();
    return last;
  }

  void evaluate(const PrimitiveOp& op, std::span<std::vector<float>> states) {
    const size_t id = static_cast<size_t>(op.out);
    const Shape& shape = f_.values[id].shape;
    if (op.kind == Primitive::weight) borrowed_[id] = tensors_[static_cast<size_t>(op.index)].data();
    if (op.kind == Primitive::read_state) borrowed_[id] = states[static_cast<size_t>(op.index)].data();  // writes come last
    if (borrowed_[id] != nullptr) return;
    data_[id].resize(static_cast<size_t>(elements(shape)));
    float* out = data_[id].data();
    switch (op.kind) {
      case Primitive::literal: out[0] = op.value; return;
      case Primitive::conv1x1: return product(op.in[1], op.in[0], shape, true, out);
      case Primitive::matmul: return product(op.in[0], op.in[1], shape, false, out);
      case Primitive::dequantise: case Primitive::add: case Primitive::sub: case Primitive::mul: case Primitive::div: case Primitive::maximum:
        return evaluating::binary(op.kind, view(op.in[0]), view(op.in[1]), shape, out);
      case Primitive::sigmoid: case Primitive::exp: case Primitive::rsqrt: return evaluating::unary(op.kind, view(op.in[0]), !rounds(), out);
      case Primitive::softmax: case Primitive::reduce_sum: case Primitive::reduce_mean: case Primitive::reduce_max: case Primitive::argmax:
        return evaluating::along_axis(op.kind, view(op.in[0]), op.axis, !rounds(), out);
      case Primitive::reshape: std::copy_n(view(op.in[0]).data, data_[id].size(), out); return;
      case Primitive::transpose: return evaluating::transpose(view(op.in[0]), op.order, shape, out);
      default: return move(op, shape, out);
    }
  }

  void move(const PrimitiveOp& op, const Shape& shape, float* out) {
    const size_t axis = static_cast<size_t>(op.axis);
    if (op.kind == Primitive::slice) return evaluating::copy_axis(view(op.in[0]), op.begin, shape[axis], op.axis, 0, shape, out);
    if (op.kind == Primitive::concat) {
      int32_t to = 0;
      for (ValueId v : op.in) {
        const View x = view(v);
        evaluating::copy_axis(x, 0, (*x.shape)[axis], op.axis, to, shape, out);
        to += (*x.shape)[axis];
      }
      return;
    }
    const View x = view(op.in[0]), block = view(op.in[1]);  // update_block
    std::copy_n(x.data, elements(shape), out);
    const int32_t room = shape[axis] - (*block.shape)[axis];
    const int32_t offset = static_cast<int32_t>(std::clamp(view(op.in[2]).data[0], 0.0f, static_cast<float>(room)));
    evaluating::copy_axis(block, 0, (*block.shape)[axis], op.axis, offset, shape, out);
  }

  // a (..., M, K) * b (..., K, N), or as a convolution: weights a (O, I, 1, 1), rows b (1, I, 1, S).
  void product(ValueId a, ValueId b, const Shape& shape, bool convolution, float* out) {
    const View va = view(a), vb = view(b);
    std::vector<float> rounded;
    if (convolution && options_.int8_inputs) rounded = evaluating::int8_rows(vb);
    evaluating::Product p{va.data, rounded.empty() ? vb.data : rounded.data(), out, 0, 0, static_cast<size_t>(shape.back()), {0}, {0}};
    if (convolution) {
      p.m = static_cast<size_t>((*va.shape)[0]);
      p.k = static_cast<size_t>((*va.shape)[1]);
    } else {
      p.m = static_cast<size_t>(shape[shape.size() - 2]);
      p.k = static_cast<size_t>(va.shape->back());
      p.a_batch = batches(*va.shape, shape);
      p.b_batch = batches(*vb.shape, shape);
    }
    const bool single = !convolution && p.m * p.n * p.k * p.a_batch.size() < 1 << 16;
    const uint32_t rows = static_cast<uint32_t>(p.m * p.a_batch.size());
    const Arithmetic arithmetic = convolution && rounds() ? Arithmetic::f16 : options_.arithmetic;
    if (single) return evaluating::multiply(p, arithmetic, 0, rows);
    team_.parallel_for(rows, 16, [&](uint32_t begin, uint32_t end, uint32_t) { evaluating::multiply(p, arithmetic, begin, end); });
  }
  // For each leading index of `out`, which matrix of `shape` it reads.
  static std::vector<size_t> batches(const Shape& shape, const Shape& out) {
    std::vector<size_t> at = {0};
    for (size_t axis = 0; axis + 2 < out.size(); ++axis) {
      std::vector<size_t> next;
      for (size_t base : at)
        for (int32_t i = 0; i < out[axis]; ++i) next.push_back(base * static_cast<size_t>(shape[axis]) + static_cast<size_t>(shape[axis] == 1 ? 0 : i));
      at = std::move(next);
    }
    return at;
  }

  const LoweredProgram& program_;
  const int32_t number_;
  const LoweredFunction& f_;
  const LoweredTensors& tensors_;
  const EvaluateOptions& options_;
  ThreadTeam& team_;
  std::vector<std::vector<float>> data_;
  std::vector<std::pair<int32_t, std::vector<float>>> writes_;
  std::vector<const float*> borrowed_;  // weights and states; null elsewhere
};

}  // namespace

Evaluator::Evaluator(const LoweredProgram& program, const LoweredTensors& tensors, const EvaluateOptions& options)
    : program_(program), tensors_(tensors), options_(options), team_(std::make_unique<ThreadTeam>(options.threads)) {
  clear_counts();
}
Evaluator::~Evaluator() = default;

void Evaluator::clear_counts() {
  counts_.clear();
  if (options_.arithmetic == Arithmetic::f32) return;
  for (const LoweredFunction& f : program_.functions) counts_.emplace_back(f.ops.size());
}

Status Evaluator::run(int32_t function, std::span<const NamedValues> inputs, std::span<std::vector<float>> states, std::vector<NamedValues>& outputs) {
  if (function < 0 || static_cast<size_t>(function) >= program_.functions.size()) return invalid("evaluate: function " + std::to_string(function) + " of " + std::to_string(program_.functions.size()));
  Run run(program_, function, tensors_, options_, *team_);
  ESPALIER_TRY(run.load(inputs, states));
  std::vector<RangeCount> none;
  run.run(states, counts_.empty() ? none : counts_[static_cast<size_t>(function)]);
  run.outputs(outputs);
  run.write_states(states);
  return {};
}

std::string range_report(const LoweredFunction& function, std::span<const RangeCount> counts) {
  std::string text;
  for (size_t i = 0; i < counts.size() && i < function.ops.size(); ++i) {
    const RangeCount& c = counts[i];
    if (c.overflows == 0 && c.flushed == 0) continue;
    const PrimitiveOp& op = function.ops[i];
    text += (op.source == kNone ? std::string() : function.origins[static_cast<size_t>(op.source)] + " ") + op.name() + ": " + std::to_string(c.overflows) +
            " overflows and " + std::to_string(c.flushed) + " flushed of " + std::to_string(c.values) + " values, the largest " + std::to_string(c.largest) + "\n";
  }
  return text;
}

}  // namespace espalier
