// Qwen 3, dense: as llama, with q and k normalised by head. Source: transformers models/qwen3, llama.cpp conversion/qwen.py.
#include "models/decoder.h"
#include "models/families.h"

namespace espalier::models {
namespace {

Result<ModelPlan> plan_hf(const Checkpoint& checkpoint) {
  ConfigReader c(checkpoint.config(), config_name(checkpoint));
  // Published configs carry a window next to use_sliding_window = false, which switches it off.
  ESPALIER_ASSIGN(const std::optional<bool> window, c.optional_bool("use_sliding_window"));
  static constexpr const char* kWindow[] = {"sliding_window", "max_window_layers"};
  if (!window.value_or(false)) c.ignore(kWindow);
  ESPALIER_TRY(refuse_common_keys(c));
  if (window.value_or(false)) return c.error("use_sliding_window", "is true: sliding-window attention is not implemented");
  DecoderShape s{"qwen3"};
  ESPALIER_TRY(read_standard_hf(c, s));
  ESPALIER_ASSIGN(const auto types, c.optional_strings("layer_types", s.attention.size()));
  if (types)
    for (const std::string& t : *types)
      if (t != "full_attention") return c.error("layer_types", "expected full_attention, found '" + t + "', which is not implemented");
  ESPALIER_ASSIGN(const std::optional<bool> bias, c.optional_bool("attention_bias"));
  s.q_bias = s.k_bias = s.v_bias = s.o_bias = bias.value_or(false);
  s.qk_norm = true;
  ESPALIER_ASSIGN(const int32_t context, required_i32(c, "max_position_embeddings", 1, INT32_MAX));
  ESPALIER_ASSIGN(s.vocabulary, table_rows(checkpoint, kStandardHf, s.hidden));
  return finish_plan(c, checkpoint, s, kStandardHf, kStandardHf, context);
}

Result<ModelPlan> plan_gguf(const Checkpoint& checkpoint) {
  ConfigReader c(checkpoint.config(), config_name(checkpoint), "qwen3.");
  DecoderShape s{"qwen3"};
  ESPALIER_TRY(read_standard_gguf(c, s));
  s.qk_norm = true;
  const DecoderNames& file = file_names(checkpoint, kStandardHf, kStandardGguf);
  find_gguf_biases(checkpoint, s, file);
  return finish_gguf_plan(c, checkpoint, s, kStandardHf, file);
}

}  // namespace

Result<ModelPlan> plan_qwen3(const Checkpoint& checkpoint) { return is_gguf(checkpoint) ? plan_gguf(checkpoint) : plan_hf(checkpoint); }

}  // namespace espalier::models
