// LFM2 and LFM2.5, dense: short convolutions and attention mixed, q and k normalised by head, tied head.
// Sources: transformers models/lfm2, llama.cpp conversion/lfm2.py.
#include <algorithm>

#include "models/decoder.h"
#include "models/families.h"

namespace espalier::models {
namespace {

constexpr DecoderNames kHf = {
    "model.embed_tokens.weight", "model.embedding_norm.weight", "lm_head.weight",
    "model.layers.{}.operator_norm.weight", "model.layers.{}.ffn_norm.weight",
    "model.layers.{}.feed_forward.w1.weight", "model.layers.{}.feed_forward.w3.weight", "model.layers.{}.feed_forward.w2.weight",
    "model.layers.{}.self_attn.q_proj.weight", "model.layers.{}.self_attn.k_proj.weight", "model.layers.{}.self_attn.v_proj.weight",
    "model.layers.{}.self_attn.out_proj.weight",
    "model.layers.{}.self_attn.q_layernorm.weight", "model.layers.{}.self_attn.k_layernorm.weight",
    "model.layers.{}.conv.in_proj.weight", "model.layers.{}.conv.conv.weight", "model.layers.{}.conv.out_proj.weight"};
constexpr DecoderNames kGguf = {
    "token_embd.weight", "token_embd_norm.weight", "output.weight",
    "blk.{}.attn_norm.weight", "blk.{}.ffn_norm.weight",
    "blk.{}.ffn_gate.weight", "blk.{}.ffn_up.weight", "blk.{}.ffn_down.weight",
    "blk.{}.attn_q.weight", "blk.{}.attn_k.weight", "blk.{}.attn_v.weight", "blk.{}.attn_output.weight",
    "blk.{}.attn_q_norm.weight", "blk.{}.attn_k_norm.weight",
    "blk.{}.shortconv.in_proj.weight", "blk.{}.shortconv.conv.weight", "blk.{}.shortconv.out_proj.weight"};

constexpr const char* kIgnored[] = {"block_dim", "conv_dim", "conv_dim_out", "num_heads", "block_mlp_init_scale", "block_out_init_scale",
                                    "block_use_swiglu", "block_use_xavier_init", "conv_use_xavier_init", "use_pos_enc", "block_norm_eps"};

// Spec 1.2: the width that the config means, rounded as transformers does it.
Result<int32_t> ffn_width(ConfigReader& c) {
  const std::string_view key = c.first_of({"block_ff_dim", "intermediate_size"});
  ESPALIER_ASSIGN(int64_t f, c.required_int(key, 1, kMaxWidth));
  ESPALIER_ASSIGN(const std::optional<bool> adjust, c.optional_bool("block_auto_adjust_ff_dim"));
  ESPALIER_ASSIGN(const std::optional<double> multiplier, c.optional_number("block_ffn_dim_multiplier", 1e-3, 1e3));
  ESPALIER_ASSIGN(const std::optional<int64_t> multiple, c.optional_int("block_multiple_of", 1, kMaxWidth));
  if (!adjust) return c.error("block_auto_adjust_ff_dim", "is missing, and the feed-forward width depends on it");
  if (!*adjust) return static_cast<int32_t>(f);
  if (!multiplier || !multiple)
    return c.error(multiplier ? "block_multiple_of" : "block_ffn_dim_multiplier", "is missing, and the adjusted feed-forward width depends on it");
  f = 2 * f / 3;
  f = static_cast<int64_t>(*multiplier * static_cast<double>(f));
  f = *multiple * ((f + *multiple - 1) / *multiple);
  if (f < 1 || f > kMaxWidth) return c.error(key, "gives a feed-forward width of " + std::to_string(f));
  return static_cast<int32_t>(f);
}

Result<std::vector<bool>> layer_kinds(ConfigReader& c, int32_t layers) {
  std::vector<bool> out(static_cast<size_t>(layers));
  ESPALIER_ASSIGN(const auto types, c.optional_strings("layer_types", out.size()));
  ESPALIER_ASSIGN(const auto indices, c.optional_ints("full_attn_idxs", 0, 0, layers - 1));
  if (!types && !indices) return c.error("layer_types", "is missing: expected \"conv\" or \"full_attention\" for each layer");
  std::vector<bool> listed(out.size());
  if (indices)
    for (int64_t i : *indices) listed[static_cast<size_t>(i)] = true;
  if (!types) return listed;
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string& t = (*types)[i];
    if (t != "conv" && t != "full_attention") return c.error("layer_types", "layer " + std::to_string(i) + ": expected conv or full_attention, found '" + t + "'");
    out[i] = t == "full_attention";
  }
  if (indices && out != listed) return c.error("full_attn_idxs", "disagrees with layer_types; readers differ on which is right");
  return out;
}

Result<ModelPlan> plan_hf(const Checkpoint& checkpoint) {
  ConfigReader c(checkpoint.config(), config_name(checkpoint));
  ESPALIER_TRY(refuse_common_keys(c));
  DecoderShape s{"lfm2"};
  ESPALIER_ASSIGN(s.hidden, required_i32(c, "hidden_size", 1, kMaxWidth));
  ESPALIER_ASSIGN(s.ffn, ffn_width(c));
  ESPALIER_ASSIGN(const int32_t layers, required_i32(c, "num_hidden_layers", 1, kMaxLayers));
  ESPALIER_ASSIGN(s.attention, layer_kinds(c, layers));
  ESPALIER_TRY(read_heads(c, s, "num_attention_heads", "num_key_value_heads", "head_dim"));
  ESPALIER_ASSIGN(s.eps, required_f32(c, c.first_of({"norm_eps", "block_norm_eps"})));
  ESPALIER_ASSIGN(s.conv_kernel, required_i32(c, "conv_L_cache", 1, kMaxConvKernel));
  ESPALIER_ASSIGN(const std::optional<bool> bias, c.optional_bool("conv_bias"));
  s.conv_bias = bias.value_or(false);
  ESPALIER_ASSIGN(s.rope, read_hf_rope(c, s.head_dim, {"rope_theta", "theta"}));
  ESPALIER_ASSIGN(const std::optional<bool> tied, c.optional_bool(c.first_of({"tie_word_embeddings", "tie_embedding"})));
  s.tied = tied.value_or(true);
  s.qk_norm = true;
  ESPALIER_ASSIGN(const int32_t context, required_i32(c, "max_position_embeddings", 1, INT32_MAX));
  ESPALIER_ASSIGN(s.vocabulary, table_rows(checkpoint, kHf, s.hidden));
  c.ignore(kIgnored);
  return finish_plan(c, checkpoint, s, kHf, kHf, context);
}

Result<ModelPlan> plan_gguf(const Checkpoint& checkpoint) {
  ConfigReader c(checkpoint.config(), config_name(checkpoint), "lfm2.");
  DecoderShape s{"lfm2"};
  ESPALIER_TRY(read_gguf_sizes(c, s));
  ESPALIER_ASSIGN(const std::vector<int64_t> kv, c.required_ints("attention.head_count_kv", s.attention.size(), 0, 1 << 16, true));
  for (size_t i = 0; i < kv.size(); ++i) {
    s.attention[i] = kv[i] != 0;
    if (kv[i] == 0) continue;
    if (s.n_kv_heads != 0 && s.n_kv_heads != kv[i]) return c.error("attention.head_count_kv", "layers with different K/V head counts are not implemented");
    s.n_kv_heads = static_cast<int32_t>(kv[i]);
  }
  ESPALIER_TRY(finish_gguf_heads(c, s));
  ESPALIER_ASSIGN(s.conv_kernel, required_i32(c, "shortconv.l_cache", 1, kMaxConvKernel));
  ESPALIER_ASSIGN(const std::optional<bool> causal, c.optional_bool("attention.causal"));
  if (causal && !*causal) return c.error("attention.causal", "is false: this is an encoder, and it cannot generate");
  const DecoderNames& file = file_names(checkpoint, kHf, kGguf);
  for (int32_t i = 0; i < static_cast<int32_t>(s.attention.size()); ++i)
    s.conv_bias = s.conv_bias || checkpoint.find(bias_name(layer_name(file.conv_in, i))) != nullptr;
  s.qk_norm = true;
  return finish_gguf_plan(c, checkpoint, s, kHf, file);
}

}  // namespace

Result<ModelPlan> plan_lfm2(const Checkpoint& checkpoint) { return is_gguf(checkpoint) ? plan_gguf(checkpoint) : plan_hf(checkpoint); }

}  // namespace espalier::models
