// What the families' configs have in common.
#include "models/decoder.h"

#include "weights/packed_words.h"

namespace espalier::models {
namespace {

constexpr const char* kIgnored[] = {
    "architectures", "model_type", "auto_map", "model_file", "torch_dtype", "dtype", "transformers_version", "initializer_range",
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "_name_or_path", "quantization", "quantization_config",
    "attention_dropout", "pretraining_tp", "output_attentions", "output_hidden_states", "return_dict", "is_decoder", "is_llama_config",
    "chunk_size_feed_forward", "id2label", "label2id", "problem_type", "is_encoder_decoder", "add_cross_attention",
    "cross_attention_hidden_size", "tokenizer_class", "decoder_start_token_id", "sep_token_id", "prefix", "finetuning_task",
    "task_specific_params", "tie_encoder_decoder", "unsloth_*", "transformers.js_config",
};

constexpr uint64_t kMaxVocabulary = 1u << 24;
const Value kNull;

const std::vector<RefusedKey>& refused() {
  static const std::vector<RefusedKey> table = {
      {"sliding_window", kNull, "sliding-window attention is not implemented"},
      {"use_sliding_window", false, "sliding-window attention is not implemented"},
      {"*softcap*", kNull, "soft-capping of logits is not implemented"},
      {"logit_scale", 1.0, "a scale on logits is not implemented"},
      {"logits_scaling", 1.0, "a scale on logits is not implemented"},
      {"embedding_multiplier", 1.0, "a scale on embeddings is not implemented"},
      {"residual_multiplier", 1.0, "a scale on the residual stream is not implemented"},
      {"attention_multiplier", kNull, "a scale on attention scores is not implemented"},
      {"partial_rotary_factor", 1.0, "rotating a part of a head is not implemented"},
      {"rope_interleaved", false, "interleaved rotation is not implemented for decoders"},
      {"no_rope_layers", kNull, "layers without rotation are not implemented"},
      {"num_experts*", kNull, "mixtures of experts are not implemented"},
      {"num_local_experts", kNull, "mixtures of experts are not implemented"},
      {"n_routed_experts", kNull, "mixtures of experts are not implemented"},
      {"moe_*", kNull, "mixtures of experts are not implemented"},
      {"quant_method", kNull, "this quantisation is not read"},
      {"vision_config", kNull, "vision towers are not implemented"},
      {"audio_config", kNull, "audio towers are not implemented"},
  };
  return table;
}

Result<RopeSpec> llama3_scaling(ConfigReader& rope, RopeSpec spec) {
  ESPALIER_ASSIGN(spec.factor, rope.required_number("factor", 1e-6, 1e6));
  ESPALIER_ASSIGN(spec.low_freq_factor, rope.required_number("low_freq_factor", 1e-6, 1e6));
  ESPALIER_ASSIGN(spec.high_freq_factor, rope.required_number("high_freq_factor", 1e-6, 1e6));
  ESPALIER_ASSIGN(spec.original_context, rope.required_number("original_max_position_embeddings", 1, 1e9));
  if (spec.high_freq_factor <= spec.low_freq_factor)
    return rope.error("high_freq_factor", "expected more than low_freq_factor");
  return spec;
}

// The type and scaling of a rope_parameters or rope_scaling object.
Result<RopeSpec> read_scaling(ConfigReader& rope, RopeSpec spec) {
  std::string type = "default";
  for (const char* key : {"rope_type", "type"}) {
    ESPALIER_ASSIGN(const std::optional<std::string> found, rope.optional_string(key));
    if (found) type = *found;
  }
  if (type == "llama3") return llama3_scaling(rope, spec);
  if (type != "default") return rope.error("rope_type", "expected default or llama3, found '" + type + "', which is not implemented");
  return spec;
}

// A packed file says the rows of each matrix in words.
Result<int32_t> packed_rows(const Checkpoint& checkpoint, const char* name) {
  for (const auto& [key, words] : checkpoint.container_metadata()) {
    if (key != std::string("matrix.") + name) continue;
    const std::optional<uint64_t> rows = packed_number(words, "rows");
    if (rows && *rows > 0 && *rows <= kMaxVocabulary) return static_cast<int32_t>(*rows);
  }
  return corrupt(checkpoint.path() + ": the packed file does not state the rows of " + name);
}

Status left_over(const ConfigReader& rope) {
  const std::vector<std::string> unread = rope.unread();
  return unread.empty() ? Status() : rope.error(unread[0], "is not known, and would change the rotation");
}

}  // namespace

bool is_gguf(const Checkpoint& checkpoint) { return checkpoint.config().find("general.architecture") != nullptr; }

std::string config_name(const Checkpoint& checkpoint) {
  return checkpoint.kind() == CheckpointKind::gguf ? checkpoint.path() : "config.json";
}

Result<RopeSpec> read_hf_rope(ConfigReader& config, int32_t head_dim, std::initializer_list<std::string_view> theta_keys) {
  RopeSpec spec;
  spec.head_dim = head_dim;
  constexpr double kMaxTheta = 1e15;
  ESPALIER_ASSIGN(std::optional<ConfigReader> rope, config.optional_object("rope_parameters"));
  ESPALIER_ASSIGN(std::optional<ConfigReader> scaling, config.optional_object("rope_scaling"));
  std::optional<double> theta;
  if (rope) {
    const std::vector<RefusedKey> partial = {{"partial_rotary_factor", 1.0, "rotating a part of a head is not implemented"}};
    ESPALIER_TRY(rope->refuse_if_present(partial));
    ESPALIER_ASSIGN(theta, rope->optional_number("rope_theta", 1e-6, kMaxTheta));
    ESPALIER_ASSIGN(spec, read_scaling(*rope, spec));
    ESPALIER_TRY(left_over(*rope));
  } else if (scaling) {
    ESPALIER_ASSIGN(spec, read_scaling(*scaling, spec));
    ESPALIER_TRY(left_over(*scaling));
  }
  for (std::string_view key : theta_keys) {
    ESPALIER_ASSIGN(const std::optional<double> flat, config.optional_number(key, 1e-6, kMaxTheta));
    if (!theta) theta = flat;
  }
  if (!theta) return config.error("rope_theta", "is missing: expected the base of the rotation (rope_parameters.rope_theta or rope_theta)");
  spec.theta = *theta;
  return spec;
}

Result<RopeSpec> read_gguf_rope(ConfigReader& config, const Checkpoint& checkpoint, int32_t head_dim) {
  RopeSpec spec;
  spec.head_dim = head_dim;
  ESPALIER_ASSIGN(spec.theta, config.required_number("rope.freq_base", 1e-6, 1e15));
  ESPALIER_ASSIGN(const std::optional<int64_t> dims, config.optional_int("rope.dimension_count", 1, 1 << 20));
  if (dims && *dims != head_dim)
    return config.error("rope.dimension_count", "expected the head size " + std::to_string(head_dim) + ", found " + std::to_string(*dims) + "; rotating a part of a head is not implemented");
  ESPALIER_ASSIGN(const std::optional<std::string> scaling, config.optional_string("rope.scaling.type"));
  if (scaling && *scaling != "none") return config.error("rope.scaling.type", "expected none, found '" + *scaling + "', which is not implemented");
  if (checkpoint.find("rope_freqs.weight") != nullptr) {
    ESPALIER_ASSIGN(spec.divisors, checkpoint.vector("rope_freqs.weight", static_cast<uint64_t>(head_dim / 2)));
    for (float d : spec.divisors)
      if (!(d > 0)) return corrupt("rope_freqs.weight: expected numbers above 0, found " + std::to_string(d));
  }
  return spec;
}

Status read_activation(ConfigReader& config, std::string_view key) {
  ESPALIER_ASSIGN(const std::string act, config.required_string(key));
  if (act == "silu" || act == "swish") return {};
  return config.error(key, "expected silu, found '" + act + "', which is not implemented");
}

Result<int32_t> table_rows(const Checkpoint& checkpoint, const DecoderNames& file, int32_t hidden) {
  if (checkpoint.kind() == CheckpointKind::packed) return packed_rows(checkpoint, file.embed);
  ESPALIER_ASSIGN(const auto shape, checkpoint.matrix_shape(file.embed));
  if (shape.second != static_cast<uint64_t>(hidden))
    return corrupt(std::string(file.embed) + ": expected rows of the hidden size " + std::to_string(hidden) + ", found " + std::to_string(shape.second));
  if (shape.first == 0 || shape.first > kMaxVocabulary) return corrupt(std::string(file.embed) + ": a vocabulary of " + std::to_string(shape.first) + " rows");
  return static_cast<int32_t>(shape.first);
}

void ignore_common_keys(ConfigReader& config) { config.ignore(kIgnored); }

Status refuse_common_keys(ConfigReader& config) { return config.refuse_if_present(refused()); }

Status finish_config(ConfigReader& config, const Checkpoint& checkpoint, std::vector<std::string>& notices) {
  const std::vector<std::string> unread = config.unread();
  if (unread.empty()) return {};
  std::string list;
  for (const std::string& key : unread) list += (list.empty() ? "" : ", ") + key;
  if (is_gguf(checkpoint)) return unsupported(config.where() + ": unknown key " + list + "; it may change the model, so the file is refused", unread[0]);
  notices.push_back(config.where() + ": ignored keys " + list);
  return {};
}

}  // namespace espalier::models
