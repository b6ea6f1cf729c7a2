#include "lower/lower.h"

#include <algorithm>
#include <cmath>

#include "lower/lower_attention.h"
#include "lower/lower_builder.h"

namespace espalier {
namespace {

using lowering::PrimitiveBuilder;
using P = Primitive;

constexpr float kSmallestScale = 0x1p-12f;  // its inverse is well within fp16
constexpr int32_t kMaximumPart = 1024;

class FunctionLowering {
 public:
  FunctionLowering(const Program& program, const Function& function, const LowerOptions& options, LoweredProgram& out, LoweredFunction& f)
      : program_(program), function_(function), options_(options), out_(out), spec_(f.spec), f_(f), b_(out, f), values_(function.values.size(), kNone) {}

  Status run() {
    for (const Op& op : function_.ops) f_.origins.push_back((op.layer == kNone ? std::string() : "layer " + std::to_string(op.layer) + " ") + op.name());
    for (const Port& in : function_.inputs)
      if (!in.name.starts_with("edge.")) values_[static_cast<size_t>(in.value)] = b_.input(in.name, rows_of(width(in.value)));
    for (size_t i = 0; i < function_.ops.size(); ++i) {
      b_.source(static_cast<int32_t>(i));
      ESPALIER_TRY(op(function_.ops[i]));
    }
    b_.source(kNone);
    taps();
    return b_.finish();
  }

 private:
  Status op(const Op& op) {
    switch (op.kind()) {
      case OpKind::embed: give(op, b_.input("embedding", rows_of(width(op.out[0])))); return {};
      case OpKind::rms_norm: give(op, norm(in(op, 0), vector(op.weights[0], 1), 1, std::get<RmsNormAttr>(op.attr).eps)); return {};
      case OpKind::linear: give(op, linear(op)); return {};
      case OpKind::short_conv: return short_conv(op);
      case OpKind::qk_norm_rope: qk_norm_rope(op); return {};
      case OpKind::attention: attention(op); return {};
      case OpKind::swiglu: {
        const ValueId gate = b_.binary(P::mul, in(op, 0), b_.unary(P::sigmoid, in(op, 0)));
        give(op, b_.binary(P::mul, gate, in(op, 1)));
        return {};
      }
      case OpKind::add: give(op, b_.binary(P::add, in(op, 0), in(op, 1))); return {};
      case OpKind::head: head(op); return {};
    }
    return {Code::internal, "unknown op"};
  }

  int32_t width(ValueId v) const { return function_.values[static_cast<size_t>(v)].width; }
  ValueId in(const Op& op, size_t i) const { return values_[static_cast<size_t>(op.in[i])]; }
  void give(const Op& op, ValueId v, size_t i = 0) { values_[static_cast<size_t>(op.out[i])] = v; }
  Shape rows_of(int32_t channels) const { return {1, channels, 1, spec_.rows}; }
  const WeightDecl& decl(WeightId w) const { return program_.weights[static_cast<size_t>(w)]; }

  // A vector along `axis` of a value of rank 4.
  ValueId vector(WeightId w, int32_t axis) {
    const int32_t n = decl(w).cols;
    Shape shape = {1, 1, 1, 1};
    shape[static_cast<size_t>(axis)] = n;
    return b_.weight({decl(w).name, w, LoweredWeight::Part::values, 0, n, ScalarType::f16, shape});
  }
  ValueId matrix(WeightId w, int32_t first, int32_t rows) {
    const WeightDecl& d = decl(w);
    const std::string name = d.name + (rows == d.rows ? "" : "[" + std::to_string(first) + "]");
    const Shape shape = {rows, d.cols, 1, 1};
    const ValueId values = b_.weight({name, w, LoweredWeight::Part::values, first, rows, options_.weights, shape});
    if (options_.weights != ScalarType::i8) return values;
    const ValueId scales = b_.weight({name + ".scale", w, LoweredWeight::Part::scales, first, rows, ScalarType::f16, {rows, 1, 1, 1}});
    return b_.dequantise(values, scales);
  }

  ValueId norm(ValueId x, ValueId w, int32_t axis, float eps) {
    ValueId floor = b_.literal(eps);
    if (options_.norm == NormForm::scaled) {
      const ValueId inverse = b_.binary(P::div, b_.literal(1.0f), b_.binary(P::maximum, largest(x, axis), b_.literal(kSmallestScale)));
      const ValueId root = b_.binary(P::mul, inverse, b_.literal(std::sqrt(eps)));
      x = b_.binary(P::mul, x, inverse);
      floor = b_.binary(P::mul, root, root);
    }
    const ValueId mean = b_.along(P::reduce_mean, b_.binary(P::mul, x, x), axis);
    const ValueId r = b_.unary(P::rsqrt, b_.binary(P::add, mean, floor));
    return b_.binary(P::mul, b_.binary(P::mul, x, r), w);
  }
  // Of |x|, in parts that an accelerator takes at once.
  ValueId largest(ValueId x, int32_t axis) {
    const ValueId size = b_.binary(P::maximum, x, b_.binary(P::mul, x, b_.literal(-1.0f)));
    const int32_t n = b_.shape(size)[static_cast<size_t>(axis)];
    ValueId out = kNone;
    for (int32_t first = 0; first < n; first += kMaximumPart) {
      const int32_t length = std::min(kMaximumPart, n - first);
      const ValueId m = b_.along(P::reduce_max, length == n ? size : b_.slice(size, axis, first, length), axis);
      out = out == kNone ? m : b_.binary(P::maximum, out, m);
    }
    return out;
  }

  ValueId linear(const Op& op) {
    const ValueId y = b_.binary(P::conv1x1, in(op, 0), matrix(op.weights[0], 0, decl(op.weights[0]).rows));
    return op.weights[1] == kNone ? y : b_.binary(P::add, y, vector(op.weights[1], 1));
  }

  Status short_conv(const Op& op) {
    const ShortConvAttr& a = std::get<ShortConvAttr>(op.attr);
    if (a.centred) return unsupported("program " + program_.family + ": short_conv that is centred has no lowering", "short_conv");
    const int32_t n = width(op.out[0]);
    const ValueId u = b_.binary(P::mul, b_.slice(in(op, 0), 1, 0, n), b_.slice(in(op, 0), 1, 2 * n, n));
    const int32_t state = lowering::state_index(out_, op.state, ".");
    const ValueId all = b_.concat({b_.read_state(state), u}, 3);
    ValueId sum = kNone;
    for (int32_t t = 0; t < a.kernel; ++t) {
      const ValueId frame = t == a.kernel - 1 ? u : b_.binary(P::matmul, all, ancestor(a.kernel - 1 - t));
      const ValueId tap = b_.weight({decl(op.weights[0]).name + ".tap" + std::to_string(t), op.weights[0], LoweredWeight::Part::column, t, n, ScalarType::f16, {1, n, 1, 1}});
      const ValueId product = b_.binary(P::mul, frame, tap);
      sum = sum == kNone ? product : b_.binary(P::add, sum, product);
    }
    if (op.weights[1] != kNone) sum = b_.binary(P::add, sum, vector(op.weights[1], 1));
    give(op, b_.binary(P::mul, b_.slice(in(op, 0), 1, n, n), sum));
    if (options_.kv == KvForm::delta) b_.output(out_.states[static_cast<size_t>(state)].name, u);
    else b_.write_state(state, b_.binary(P::matmul, all, b_.input("place_frames", {1, 1, kFrameSlots + spec_.rows, kFrameSlots})));
    return {};
  }
  ValueId ancestor(int32_t k) { return b_.input("ancestor." + std::to_string(k), {1, 1, kFrameSlots + spec_.rows, spec_.rows}); }

  void qk_norm_rope(const Op& op) {
    const QkNormRopeAttr& a = std::get<QkNormRopeAttr>(op.attr);
    if (op.in[0] != kNone) {
      const ValueId q = rotate(in(op, 0), a.n_heads, op.weights[0], a);
      give(op, b_.binary(P::mul, q, b_.literal(a.q_scale)), 0);
    }
    give(op, rotate(in(op, 1), a.n_kv_heads, op.weights[1], a), 1);
  }
  ValueId rotate(ValueId x, int32_t heads, WeightId weight, const QkNormRopeAttr& a) {
    const int32_t hd = a.head_dim, half = hd / 2, w = spec_.rows;
    const std::string table = std::to_string(a.rope);
    ValueId cos = b_.input("cos." + table, {1, 1, half, w}), sin = b_.input("sin." + table, {1, 1, half, w});
    x = b_.reshape(x, {1, heads, hd, w});
    if (weight != kNone) x = norm(x, vector(weight, 2), 2, a.eps);
    const bool interleaved = program_.ropes[static_cast<size_t>(a.rope)].interleaved;
    const int32_t axis = interleaved ? 3 : 2;  // pairs lie side by side, or half a head apart
    if (interleaved) {
      x = b_.reshape(x, {1, heads, half, 2, w});
      cos = b_.reshape(cos, {1, 1, half, 1, w});
      sin = b_.reshape(sin, {1, 1, half, 1, w});
    }
    const int32_t part = interleaved ? 1 : half;
    const ValueId x1 = b_.slice(x, axis, 0, part), x2 = b_.slice(x, axis, part, part);
    const ValueId x1c = b_.binary(P::mul, x1, cos), x2s = b_.binary(P::mul, x2, sin);
    const ValueId x2c = b_.binary(P::mul, x2, cos), x1s = b_.binary(P::mul, x1, sin);
    const ValueId y1 = b_.binary(P::sub, x1c, x2s), y2 = b_.binary(P::add, x2c, x1s);
    return b_.reshape(b_.concat({y1, y2}, axis), rows_of(heads * hd));
  }

  void attention(const Op& op) {
    const AttentionAttr& a = std::get<AttentionAttr>(op.attr);
    lowering::Attention core(b_, out_, options_, spec_);
    if (op.in[0] != kNone) give(op, core.attend(a, op.state, in(op, 0), in(op, 1), in(op, 2)));
    if (a.keep) core.keep(op.state, in(op, 1), in(op, 2));
  }

  void head(const Op& op) {
    if (spec_.head == HeadRows::none) return;
    const int32_t entries = decl(op.weights[0]).rows;
    ValueId x = in(op, 0);
    if (spec_.head == HeadRows::chosen) x = b_.binary(P::matmul, x, b_.input("choose", {1, 1, spec_.rows, std::min(spec_.rows, kChosenRows)}));
    std::vector<ValueId> maxima, indices;
    for (int32_t first = 0, part = 0; first < entries; first += options_.subrange, ++part) {
      const ValueId logits = b_.binary(P::conv1x1, x, matrix(op.weights[0], first, std::min(options_.subrange, entries - first)));
      if (spec_.form == HeadForm::logits) {
        b_.output("logits." + std::to_string(part), logits);
        continue;
      }
      maxima.push_back(b_.along(P::reduce_max, logits, 1));
      indices.push_back(b_.along(P::argmax, logits, 1));
    }
    if (spec_.form == HeadForm::logits) return;
    b_.output("head.max", b_.concat(std::move(maxima), 1));
    b_.output("head.index", b_.concat(std::move(indices), 1));
  }

  void taps() {
    for (const Port& out : function_.outputs) {
      const bool wanted = !options_.taps || std::find(options_.taps->begin(), options_.taps->end(), out.name) != options_.taps->end();
      if (wanted && !out.name.starts_with("edge.")) b_.output(out.name, values_[static_cast<size_t>(out.value)]);
    }
  }

  const Program& program_;
  const Function& function_;
  const LowerOptions& options_;
  LoweredProgram& out_;
  const FunctionSpec spec_;
  LoweredFunction& f_;
  PrimitiveBuilder b_;
  std::vector<ValueId> values_;  // by ValueId of the original function
};

Status declare_states(const Program& program, LoweredProgram& out) {
  for (size_t s = 0; s < program.states.size(); ++s) {
    const StateDecl& d = program.states[s];
    const StateId id = static_cast<StateId>(s);
    if (d.kind == StateDecl::Kind::frames) {
      if (d.frame_count > kFrameSlots)
        return unsupported("program " + program.family + ": state " + d.name + " keeps " + std::to_string(d.frame_count) + " frames; short_conv is lowered for at most " + std::to_string(kFrameSlots), "short_conv");
      out.frame_count = std::max(out.frame_count, d.frame_count);
      out.states.push_back({d.name, id, false, d.width});
      continue;
    }
    out.states.push_back({d.name + ".k", id, true, d.n_kv_heads * d.head_dim});
    out.states.push_back({d.name + ".v", id, true, d.n_kv_heads * d.head_dim});
  }
  return {};
}

Status check_options(const LowerOptions& options) {
  if (options.subrange < 1) return invalid("lower: a sub-range of " + std::to_string(options.subrange) + " entries");
  if (options.attention_chunks < 1 || options.attention_chunks > 64) return invalid("lower: attention in " + std::to_string(options.attention_chunks) + " parts, expected 1 to 64");
  if (options.weights == ScalarType::i32) return invalid("lower: weights are f16 or i8");
  for (const FunctionSpec& f : options.functions)
    if (f.rows < 1 || f.rows > 4096 || f.bucket < 1 || f.bucket > 1 << 20)
      return invalid("lower: a window of " + std::to_string(f.rows) + " rows and a bucket of " + std::to_string(f.bucket) + ": expected 1 to 4096 and 1 to 1048576");
  return {};
}

}  // namespace

Result<LoweredProgram> lower(const Program& program, const LowerOptions& options) {
  ESPALIER_TRY(verify(program));
  ESPALIER_TRY(check_options(options));
  LoweredProgram out;
  out.family = program.family;
  out.hidden = program.hidden;
  out.vocabulary = program.vocabulary;
  out.subrange = options.subrange;
  out.kv = options.kv;
  ESPALIER_TRY(declare_states(program, out));
  for (const FunctionSpec& spec : options.functions) {
    const Function* function = program.find(spec.role);
    if (function == nullptr) return invalid(std::string("lower: program ") + program.family + " has no function " + role_name(spec.role));
    LoweredFunction f;
    f.spec = spec;
    ESPALIER_TRY(FunctionLowering(program, *function, options, out, f).run());
    out.functions.push_back(std::move(f));
  }
  ESPALIER_TRY(verify(out));
  return out;
}

}  // namespace espalier
