#include "convert/scaling.h"

#include <cmath>

namespace espalier {

ExponentSum ExponentSum::of(int32_t variable) {
  ExponentSum s;
  s.terms_[variable] = 1;
  return s;
}
ExponentSum ExponentSum::operator+(const ExponentSum& other) const {
  ExponentSum s = *this;
  for (const auto& [variable, coefficient] : other.terms_)
    if ((s.terms_[variable] += coefficient) == 0) s.terms_.erase(variable);
  return s;
}
ExponentSum ExponentSum::operator-() const {
  ExponentSum s = *this;
  for (auto& [variable, coefficient] : s.terms_) coefficient = -coefficient;
  return s;
}
int32_t ExponentSum::at(const std::vector<int32_t>& exponents) const {
  int32_t sum = 0;
  for (const auto& [variable, coefficient] : terms_) sum += coefficient * exponents[static_cast<size_t>(variable)];
  return sum;
}

namespace {

constexpr int32_t kConvParts = 3;  // of a short convolution's input: what is multiplied, the gate, what it is multiplied with

class Finder {
 public:
  Finder(const Program& program, const Function& function) : program_(program), function_(function) {
    s_.values.resize(function.values.size());
    s_.weights.resize(program.weights.size());
    s_.norm_inputs.resize(function.ops.size());
    residual_ = variable("residual");
  }

  Result<Scaling> run() {
    for (size_t i = 0; i < function_.ops.size(); ++i) ESPALIER_TRY(op(i, function_.ops[i]));
    for (const Port& out : function_.outputs)
      if (const PartExponents& e = s_.values[static_cast<size_t>(out.value)]; e != PartExponents{residual_} && e != PartExponents(1))
        return unsupported("output " + out.name + " is a value whose scale is chosen; no rule for it", out.name);
    return std::move(s_);
  }

 private:
  ExponentSum variable(const std::string& name) {
    s_.variables.push_back(name);
    return ExponentSum::of(static_cast<int32_t>(s_.variables.size()) - 1);
  }
  std::string named(const Op& op, const char* what) const { return (op.layer == kNone ? std::string() : "layer " + std::to_string(op.layer) + " ") + what; }
  Status no_rule(const Op& op, const std::string& why) const { return unsupported("scales for " + program_.family + ": " + named(op, op.name()) + ": " + why, op.name()); }

  const PartExponents& in(const Op& op, size_t i) const { return s_.values[static_cast<size_t>(op.in[i])]; }
  void give(const Op& op, size_t i, PartExponents e) { s_.values[static_cast<size_t>(op.out[i])] = std::move(e); }
  Result<ExponentSum> whole(const Op& op, size_t i) const {
    const PartExponents& e = in(op, i);
    if (e.size() != 1) return no_rule(op, "it reads the input of a short convolution");
    return e[0];
  }
  Status use(const Op& op, WeightId w, PartExponents e) {
    if (w == kNone) return {};
    PartExponents& have = s_.weights[static_cast<size_t>(w)];
    if (!have.empty() && have != e) return no_rule(op, "weight " + program_.weights[static_cast<size_t>(w)].name + " is shared with another op");
    have = std::move(e);
    return {};
  }

  // What reads a value decides which scales it may have: the first reader for which there is a rule.
  struct Reader {
    const Op* op = nullptr;
    size_t input = 0;
  };
  Reader reader_of(ValueId v) const {
    for (const Op& op : function_.ops)
      for (size_t i = 0; i < op.in.size(); ++i)
        if (op.in[i] == v) return {&op, i};
    return {};
  }
  bool is_output(ValueId v) const {
    for (const Port& out : function_.outputs)
      if (out.value == v) return true;
    return false;
  }
  // Each head's q and k share what their norms divide out; without norms they are scaled against each other.
  ExponentSum before_norm(const Op& qk, bool is_key) {
    auto [at, is_new] = before_norm_.try_emplace(&qk);
    if (is_new) at->second = variable(named(qk, qk.weights[0] == kNone && qk.weights[1] == kNone ? "q against k" : "q and k"));
    return is_key && qk.weights[0] == kNone && qk.weights[1] == kNone ? -at->second : at->second;
  }

  PartExponents wanted(ValueId v) {
    const Reader reader = reader_of(v);
    if (reader.op == nullptr || is_output(v)) return PartExponents(1);
    const Op& r = *reader.op;
    switch (r.kind()) {
      case OpKind::add: return {residual_};
      case OpKind::swiglu: return reader.input == 0 ? PartExponents(1) : PartExponents{variable(named(r, "up"))};
      case OpKind::attention: return reader.input == 2 ? PartExponents{variable(named(r, "v"))} : PartExponents(1);
      case OpKind::qk_norm_rope: return {before_norm(r, reader.input == 1)};
      case OpKind::short_conv: {
        const ExponentSum b = variable(named(r, "conv b")), c = variable(named(r, "conv c")), x = variable(named(r, "conv x"));
        return {b, c, x};
      }
      default: return PartExponents(1);
    }
  }

  Status op(size_t index, const Op& op) {
    switch (op.kind()) {
      case OpKind::embed: give(op, 0, {residual_}); return use(op, op.weights[0], {residual_});
      case OpKind::rms_norm: return rms_norm(index, op);
      case OpKind::linear: return linear(op);
      case OpKind::short_conv: return short_conv(op);
      case OpKind::qk_norm_rope: return qk_norm_rope(index, op);
      case OpKind::attention: {
        ESPALIER_ASSIGN(const ExponentSum v, whole(op, 2));
        if (op.in[0] != kNone) give(op, 0, {v});
        if (op.state != kNone) {
          s_.keys[op.state] = in(op, 1);
          s_.states[op.state] = {v};
        }
        return {};
      }
      case OpKind::swiglu: give(op, 0, in(op, 1)); return {};
      case OpKind::add:
        if (in(op, 0) != in(op, 1)) return no_rule(op, "its inputs have scales of their own");
        give(op, 0, in(op, 0));
        return {};
      case OpKind::head: {
        ESPALIER_ASSIGN(const ExponentSum x, whole(op, 0));
        return use(op, op.weights[0], {-x});
      }
    }
    return no_rule(op, "unknown");
  }

  Status rms_norm(size_t index, const Op& op) {
    ESPALIER_ASSIGN(s_.norm_inputs[index], whole(op, 0));
    const Reader reader = reader_of(op.out[0]);
    ExponentSum out;
    if (reader.op != nullptr && !is_output(op.out[0])) {
      const WeightId head = reader.op->kind() == OpKind::head ? reader.op->weights[0] : kNone;
      const bool tied = head != kNone && !s_.weights[static_cast<size_t>(head)].empty();
      if (tied) out = -s_.weights[static_cast<size_t>(head)][0];
      else if (head != kNone || reader.op->kind() == OpKind::linear) out = variable(program_.weights[static_cast<size_t>(op.weights[0])].name);
    }
    give(op, 0, {out});
    return use(op, op.weights[0], {out});
  }

  Status linear(const Op& op) {
    ESPALIER_ASSIGN(const ExponentSum x, whole(op, 0));
    const PartExponents out = wanted(op.out[0]);
    PartExponents rows;
    for (const ExponentSum& e : out) rows.push_back(e - x);
    give(op, 0, out);
    ESPALIER_TRY(use(op, op.weights[0], rows));
    return use(op, op.weights[1], out);
  }

  Status short_conv(const Op& op) {
    const PartExponents p = in(op, 0);
    if (p.size() != kConvParts) return no_rule(op, "its input comes from no linear layer");
    const ExponentSum taps = variable(named(op, "conv taps")), frames = p[0] + p[2];
    if (op.state != kNone) s_.states[op.state] = {frames};
    give(op, 0, {frames + taps + p[1]});
    ESPALIER_TRY(use(op, op.weights[0], {taps}));
    return use(op, op.weights[1], {frames + taps});
  }

  Status qk_norm_rope(size_t index, const Op& op) {
    const bool normed = op.weights[0] != kNone || op.weights[1] != kNone;
    ESPALIER_ASSIGN(const ExponentSum k, whole(op, 1));
    if (!normed) {
      if (op.in[0] != kNone) give(op, 0, in(op, 0));
      give(op, 1, {k});
      return {};
    }
    if (op.weights[0] == kNone || op.weights[1] == kNone) return no_rule(op, "only one of q and k is normalised");
    s_.norm_inputs[index] = k;
    const ExponentSum behind = variable(named(op, "q against k"));
    if (op.out[0] != kNone) give(op, 0, {behind});
    give(op, 1, {-behind});
    ESPALIER_TRY(use(op, op.weights[0], {behind}));
    return use(op, op.weights[1], {-behind});
  }

  const Program& program_;
  const Function& function_;
  Scaling s_;
  ExponentSum residual_;
  std::map<const Op*, ExponentSum> before_norm_;
};

// Exponents follow the primitives' own algebra.
class Tracer {
 public:
  Tracer(const Scaling& scaling, const Program& program, const LoweredProgram& lowered, const LoweredFunction& f)
      : s_(scaling), function_(*program.find(f.spec.role)), lowered_(lowered), f_(f), out_(f.values.size(), PartExponents(1)) {}

  std::vector<PartExponents> run() {
    for (const LoweredPort& in : f_.inputs)
      if (in.name == "embedding") out_[static_cast<size_t>(in.value)] = {ExponentSum::of(0)};
    for (const PrimitiveOp& op : f_.ops)
      if (op.out != kNone) out_[static_cast<size_t>(op.out)] = trace(op);
    return std::move(out_);
  }

 private:
  const PartExponents& in(const PrimitiveOp& op, size_t i) const { return out_[static_cast<size_t>(op.in[i])]; }
  PartExponents combined(const PrimitiveOp& op, bool minus) const {
    const PartExponents &a = in(op, 0), &b = in(op, 1);
    PartExponents e;
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      const ExponentSum &x = a[a.size() == 1 ? 0 : i], &y = b[b.size() == 1 ? 0 : i];
      e.push_back(minus ? x - y : x + y);
    }
    return e;
  }

  PartExponents trace(const PrimitiveOp& op) const {
    switch (op.kind) {
      case Primitive::weight: {
        const PartExponents& e = s_.weights[static_cast<size_t>(lowered_.weights[static_cast<size_t>(op.index)].source)];
        return e.empty() ? PartExponents(1) : e;
      }
      case Primitive::literal: return {literal(op)};
      case Primitive::read_state: {
        const LoweredState& state = lowered_.states[static_cast<size_t>(op.index)];
        const auto& from = state.is_kv && state.name.ends_with(".k") ? s_.keys : s_.states;
        const auto at = from.find(state.source);
        return at == from.end() ? PartExponents(1) : at->second;
      }
      case Primitive::conv1x1: case Primitive::matmul: case Primitive::mul: return combined(op, false);
      case Primitive::div: return combined(op, true);
      case Primitive::sigmoid: case Primitive::exp: case Primitive::rsqrt: case Primitive::softmax: case Primitive::argmax: return PartExponents(1);
      case Primitive::slice: return sliced(op);
      default: return op.in.empty() ? PartExponents(1) : in(op, 0);
    }
  }

  PartExponents sliced(const PrimitiveOp& op) const {
    const PartExponents& e = in(op, 0);
    if (e.size() == 1 || op.axis != 1) return e;
    const int32_t part = f_.values[static_cast<size_t>(op.in[0])].shape[1] / static_cast<int32_t>(e.size());
    return {e[static_cast<size_t>(op.begin / part)]};
  }

  // The root of a norm's eps follows what the norm reads.
  ExponentSum literal(const PrimitiveOp& op) const {
    if (op.source == kNone) return {};
    const Op& from = function_.ops[static_cast<size_t>(op.source)];
    float eps = 0;
    if (from.kind() == OpKind::rms_norm) eps = std::get<RmsNormAttr>(from.attr).eps;
    if (from.kind() == OpKind::qk_norm_rope) eps = std::get<QkNormRopeAttr>(from.attr).eps;
    return eps > 0 && op.value == std::sqrt(eps) ? s_.norm_inputs[static_cast<size_t>(op.source)] : ExponentSum();
  }

  const Scaling& s_;
  const Function& function_;
  const LoweredProgram& lowered_;
  const LoweredFunction& f_;
  std::vector<PartExponents> out_;
};

}  // namespace

Result<Scaling> find_scaling(const Program& program) {
  const Function* step = program.find(Role::step);
  if (step == nullptr) return unsupported("scales are chosen for decoders, and " + program.family + " has no function step", "step");
  return Finder(program, *step).run();
}

std::vector<PartExponents> lowered_exponents(const Scaling& scaling, const Program& program, const LoweredProgram& lowered, const LoweredFunction& function) {
  return Tracer(scaling, program, lowered, function).run();
}

}  // namespace espalier
