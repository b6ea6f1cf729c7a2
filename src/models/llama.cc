// Llama-shaped decoders: SmolLM2, Llama 3 and their kin. Source: transformers models/llama, llama.cpp conversion/llama.py.
#include "models/decoder.h"
#include "models/families.h"

namespace espalier::models {
namespace {

Result<ModelPlan> plan_hf(const Checkpoint& checkpoint) {
  ConfigReader c(checkpoint.config(), config_name(checkpoint));
  ESPALIER_TRY(refuse_common_keys(c));
  DecoderShape s{"llama"};
  ESPALIER_TRY(read_standard_hf(c, s));
  ESPALIER_ASSIGN(const std::optional<bool> bias, c.optional_bool("attention_bias"));
  s.q_bias = s.k_bias = s.v_bias = s.o_bias = bias.value_or(false);
  ESPALIER_ASSIGN(const std::optional<bool> ffn_bias, c.optional_bool("mlp_bias"));
  s.ffn_bias = ffn_bias.value_or(false);
  ESPALIER_ASSIGN(const int32_t context, required_i32(c, "max_position_embeddings", 1, INT32_MAX));
  ESPALIER_ASSIGN(s.vocabulary, table_rows(checkpoint, kStandardHf, s.hidden));
  return finish_plan(c, checkpoint, s, kStandardHf, kStandardHf, context);
}

Result<ModelPlan> plan_gguf(const Checkpoint& checkpoint) {
  ConfigReader c(checkpoint.config(), config_name(checkpoint), "llama.");
  DecoderShape s{"llama"};
  ESPALIER_TRY(read_standard_gguf(c, s));
  s.rows_interleaved = true;
  const DecoderNames& file = file_names(checkpoint, kStandardHf, kStandardGguf);
  find_gguf_biases(checkpoint, s, file);
  return finish_gguf_plan(c, checkpoint, s, kStandardHf, file);
}

}  // namespace

Result<ModelPlan> plan_llama(const Checkpoint& checkpoint) { return is_gguf(checkpoint) ? plan_gguf(checkpoint) : plan_hf(checkpoint); }

}  // namespace espalier::models
