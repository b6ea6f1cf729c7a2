#include "program/builder.h"

#include "base/check.h"

namespace espalier {

ProgramBuilder::ProgramBuilder(std::string family, int32_t layer_count, int32_t hidden, int32_t vocabulary) {
  program_.family = std::move(family);
  program_.layer_count = layer_count;
  program_.hidden = hidden;
  program_.vocabulary = vocabulary;
}

WeightId ProgramBuilder::declare(WeightDecl decl) {
  for (size_t i = 0; i < program_.weights.size(); ++i)
    if (program_.weights[i].name == decl.name && program_.weights[i].owner == decl.owner) return static_cast<WeightId>(i);
  program_.weights.push_back(std::move(decl));
  return static_cast<WeightId>(program_.weights.size() - 1);
}

WeightId ProgramBuilder::matrix(const std::string& name, int32_t rows, int32_t cols, const std::string& owner) {
  return declare({name, WeightDecl::Kind::matrix, rows, cols, owner});
}

WeightId ProgramBuilder::vector(const std::string& name, int32_t length) {
  return declare({name, WeightDecl::Kind::vector, 1, length, {}});
}

WeightId ProgramBuilder::taps(const std::string& name, int32_t channels, int32_t kernel) {
  return declare({name, WeightDecl::Kind::taps, channels, kernel, {}});
}

StateId ProgramBuilder::kv_state(int32_t layer, int32_t n_kv_heads, int32_t head_dim) {
  StateDecl decl{"layer." + std::to_string(layer) + ".kv", StateDecl::Kind::kv, layer};
  decl.n_kv_heads = n_kv_heads;
  decl.head_dim = head_dim;
  program_.states.push_back(std::move(decl));
  return static_cast<StateId>(program_.states.size() - 1);
}

StateId ProgramBuilder::frames_state(int32_t layer, int32_t count, int32_t width) {
  StateDecl decl{"layer." + std::to_string(layer) + ".frames", StateDecl::Kind::frames, layer};
  decl.frame_count = count;
  decl.width = width;
  program_.states.push_back(std::move(decl));
  return static_cast<StateId>(program_.states.size() - 1);
}

int32_t ProgramBuilder::rope(const RopeSpec& spec) {
  for (size_t i = 0; i < program_.ropes.size(); ++i)
    if (program_.ropes[i] == spec) return static_cast<int32_t>(i);
  program_.ropes.push_back(spec);
  return static_cast<int32_t>(program_.ropes.size() - 1);
}

void ProgramBuilder::function(Role role) {
  program_.functions.emplace_back();
  current().role = role;
  layer_ = kNone;
}

ValueId ProgramBuilder::value(std::string_view stem, int32_t width) {
  Function& f = current();
  std::string name(stem);
  if (layer_ != kNone) name += "." + std::to_string(layer_);
  f.values.push_back({std::move(name), width});
  return static_cast<ValueId>(f.values.size() - 1);
}

int32_t ProgramBuilder::width_of(ValueId v) const {
  const auto& values = program_.functions.back().values;
  ESP_CHECK(v >= 0 && static_cast<size_t>(v) < values.size());
  return values[static_cast<size_t>(v)].width;
}

ValueId ProgramBuilder::push(OpAttr attr, std::vector<ValueId> in, std::vector<WeightId> weights, std::string_view stem,
                             int32_t width, StateId state) {
  Op op{attr, layer_, 0, std::move(in), {}, std::move(weights), state};
  const ValueId out = value(stem, width);
  op.out.push_back(out);
  current().ops.push_back(std::move(op));
  return out;
}

ValueId ProgramBuilder::input(const std::string& name, int32_t width) {
  current().values.push_back({name, width});
  const ValueId v = static_cast<ValueId>(current().values.size() - 1);
  current().inputs.push_back({name, v, 0});
  return v;
}

ValueId ProgramBuilder::embed(WeightId table) {
  return push(EmbedAttr{}, {}, {table}, "h", program_.weights[static_cast<size_t>(table)].cols);
}

ValueId ProgramBuilder::rms_norm(ValueId x, WeightId w, float eps) {
  return push(RmsNormAttr{eps}, {x}, {w}, "n", width_of(x));
}

ValueId ProgramBuilder::linear(ValueId x, WeightId w, WeightId bias) {
  return push(LinearAttr{}, {x}, {w, bias}, "y", program_.weights[static_cast<size_t>(w)].rows);
}

ValueId ProgramBuilder::short_conv(ValueId p, WeightId taps, WeightId bias, StateId frames, int32_t kernel, bool centred) {
  return push(ShortConvAttr{kernel, centred}, {p}, {taps, bias}, "conv", width_of(p) / 3, frames);
}

ProgramBuilder::QK ProgramBuilder::qk_norm_rope(QK in, WeightId q_norm, WeightId k_norm, const QkNormRopeAttr& attr) {
  Op op{attr, layer_, 0, {in.q, in.k}, {kNone, kNone}, {q_norm, k_norm}, kNone};
  if (in.q != kNone) op.out[0] = value("q", width_of(in.q));
  op.out[1] = value("k", width_of(in.k));
  const QK out{op.out[0], op.out[1]};
  current().ops.push_back(std::move(op));
  return out;
}

ValueId ProgramBuilder::attention(QK qk, ValueId v, StateId kv, const AttentionAttr& attr) {
  Op op{attr, layer_, 0, {qk.q, qk.k, v}, {kNone}, {}, kv};
  if (qk.q != kNone) op.out[0] = value("o", attr.n_heads * attr.head_dim);
  const ValueId out = op.out[0];
  current().ops.push_back(std::move(op));
  return out;
}

ValueId ProgramBuilder::swiglu(ValueId gate, ValueId up) {
  return push(SwigluAttr{}, {gate, up}, {}, "act", width_of(gate));
}

ValueId ProgramBuilder::add(ValueId a, ValueId b) { return push(AddAttr{}, {a, b}, {}, "h", width_of(a)); }

void ProgramBuilder::head(ValueId x, WeightId table) {
  layer_ = kNone;
  current().ops.push_back({HeadAttr{}, kNone, 0, {x}, {}, {table}, kNone});
}

void ProgramBuilder::output(const std::string& name, ValueId value) { current().outputs.push_back({name, value, 0}); }

Result<Program> ProgramBuilder::finish() && {
  ESPALIER_TRY(verify(program_));
  return std::move(program_);
}

}  // namespace espalier
