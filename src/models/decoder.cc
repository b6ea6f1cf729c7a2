#include "models/decoder.h"

#include "program/builder.h"

namespace espalier::models {
std::string layer_name(const char* pattern, int32_t layer) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name;
}

std::string bias_name(std::string weight) {
  constexpr std::string_view kSuffix = ".weight";
  weight.replace(weight.size() - kSuffix.size(), kSuffix.size(), ".bias");
  return weight;
}

namespace {

class DecoderBuilder {
 public:
  DecoderBuilder(const DecoderShape& shape, const DecoderNames& canonical, const DecoderNames& file)
      : s_(shape), names_(canonical), file_(file),
        b_(shape.family, static_cast<int32_t>(shape.attention.size()), shape.hidden, shape.vocabulary) {}

  Result<ModelPlan> build() {
    b_.function(Role::step);
    rope_ = b_.rope(s_.rope);
    const WeightId table = matrix(names_.embed, file_.embed, kNone, s_.vocabulary, s_.hidden);
    ValueId h = b_.embed(table);
    for (int32_t i = 0; i < static_cast<int32_t>(s_.attention.size()); ++i) h = layer(i, h);
    b_.layer(kNone);
    const ValueId out = b_.rms_norm(h, vector(names_.final_norm, file_.final_norm, kNone, s_.hidden), s_.eps);
    b_.head(out, s_.tied ? table : matrix(names_.head, file_.head, kNone, s_.vocabulary, s_.hidden));
    ModelPlan plan;
    ESPALIER_ASSIGN(plan.program, std::move(b_).finish());
    plan.sources = std::move(sources_);
    return plan;
  }

 private:
  ValueId layer(int32_t i, ValueId h) {
    b_.layer(i);
    const ValueId a = b_.rms_norm(h, vector(names_.mixer_norm, file_.mixer_norm, i, s_.hidden), s_.eps);
    h = b_.add(h, s_.attention[static_cast<size_t>(i)] ? attention(i, a) : conv(i, a));
    const ValueId n = b_.rms_norm(h, vector(names_.ffn_norm, file_.ffn_norm, i, s_.hidden), s_.eps);
    const ValueId gate = linear(i, n, names_.gate, file_.gate, s_.ffn, s_.hidden, s_.ffn_bias);
    const ValueId up = linear(i, n, names_.up, file_.up, s_.ffn, s_.hidden, s_.ffn_bias);
    h = b_.add(h, linear(i, b_.swiglu(gate, up), names_.down, file_.down, s_.hidden, s_.ffn, s_.ffn_bias));
    b_.output("layer." + std::to_string(i), h);
    return h;
  }

  ValueId attention(int32_t i, ValueId a) {
    const int32_t q_width = s_.n_heads * s_.head_dim, kv_width = s_.n_kv_heads * s_.head_dim;
    const ValueId q = linear(i, a, names_.q, file_.q, q_width, s_.hidden, s_.q_bias, s_.n_heads);
    const ValueId k = linear(i, a, names_.k, file_.k, kv_width, s_.hidden, s_.k_bias, s_.n_kv_heads);
    const ValueId v = linear(i, a, names_.v, file_.v, kv_width, s_.hidden, s_.v_bias);
    const WeightId q_norm = s_.qk_norm ? vector(names_.q_norm, file_.q_norm, i, s_.head_dim) : kNone;
    const WeightId k_norm = s_.qk_norm ? vector(names_.k_norm, file_.k_norm, i, s_.head_dim) : kNone;
    const float q_scale = 1.0f / sqrt_of(s_.head_dim);
    const auto qk = b_.qk_norm_rope({q, k}, q_norm, k_norm, {s_.n_heads, s_.n_kv_heads, s_.head_dim, s_.eps, q_scale, rope_});
    const ValueId o = b_.attention(qk, v, b_.kv_state(i, s_.n_kv_heads, s_.head_dim),
                                   {s_.n_heads, s_.n_kv_heads, s_.head_dim, MaskKind::ancestors, true});
    return linear(i, o, names_.o, file_.o, s_.hidden, q_width, s_.o_bias);
  }

  ValueId conv(int32_t i, ValueId a) {
    const ValueId p = linear(i, a, names_.conv_in, file_.conv_in, 3 * s_.hidden, s_.hidden, s_.conv_bias);
    const WeightId taps = note(b_.taps(layer_name(names_.conv_taps, i), s_.hidden, s_.conv_kernel), layer_name(file_.conv_taps, i), 0);
    const WeightId bias = s_.conv_bias ? bias_vector(names_.conv_taps, file_.conv_taps, i, s_.hidden, 0) : kNone;
    const StateId frames = b_.frames_state(i, s_.conv_kernel - 1, s_.hidden);
    const ValueId y = b_.short_conv(p, taps, bias, frames, s_.conv_kernel, false);
    return linear(i, y, names_.conv_out, file_.conv_out, s_.hidden, s_.hidden, s_.conv_bias);
  }

  // heads > 0: the rows of a head may have to be put back in order.
  ValueId linear(int32_t i, ValueId x, const char* name, const char* file, int32_t rows, int32_t cols, bool bias, int32_t heads = 0) {
    const WeightId w = matrix(name, file, i, rows, cols, heads);
    return b_.linear(x, w, bias ? bias_vector(name, file, i, rows, heads) : kNone);
  }

  WeightId matrix(const char* name, const char* file, int32_t i, int32_t rows, int32_t cols, int32_t heads = 0) {
    return note(b_.matrix(layer_name(name, i), rows, cols), layer_name(file, i), heads);
  }
  WeightId vector(const char* name, const char* file, int32_t i, int32_t n) {
    return note(b_.vector(layer_name(name, i), n), layer_name(file, i), 0);
  }
  WeightId bias_vector(const char* name, const char* file, int32_t i, int32_t n, int32_t heads) {
    return note(b_.vector(bias_name(layer_name(name, i)), n), bias_name(layer_name(file, i)), heads);
  }
  WeightId note(WeightId w, std::string tensor, int32_t heads) {
    if (static_cast<size_t>(w) >= sources_.size()) sources_.resize(static_cast<size_t>(w) + 1);
    sources_[static_cast<size_t>(w)].tensor = std::move(tensor);
    if (heads > 0 && s_.rows_interleaved)
      sources_[static_cast<size_t>(w)].row_order = interleaved_row_order(static_cast<uint32_t>(heads), static_cast<uint32_t>(s_.head_dim));
    return w;
  }
  static float sqrt_of(int32_t n) { return __builtin_sqrtf(static_cast<float>(n)); }

  const DecoderShape& s_;
  const DecoderNames& names_;
  const DecoderNames& file_;
  ProgramBuilder b_;
  int32_t rope_ = 0;
  std::vector<WeightSource> sources_;
};

}  // namespace

Result<ModelPlan> build_decoder(const DecoderShape& shape, const DecoderNames& canonical, const DecoderNames& file) {
  return DecoderBuilder(shape, canonical, file).build();
}

}  // namespace espalier::models
