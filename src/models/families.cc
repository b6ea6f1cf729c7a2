#include "models/families.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "weights/packed_words.h"

namespace espalier {

std::span<const Family> families() {
  static constexpr Family kFamilies[] = {
      {"lfm2", "Lfm2ForCausalLM", models::plan_lfm2},
      {"llama", "LlamaForCausalLM", models::plan_llama},
      {"qwen3", "Qwen3ForCausalLM", models::plan_qwen3},
  };
  return kFamilies;
}

namespace models {

const DecoderNames kStandardHf = {
    "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
    "model.layers.{}.input_layernorm.weight", "model.layers.{}.post_attention_layernorm.weight",
    "model.layers.{}.mlp.gate_proj.weight", "model.layers.{}.mlp.up_proj.weight", "model.layers.{}.mlp.down_proj.weight",
    "model.layers.{}.self_attn.q_proj.weight", "model.layers.{}.self_attn.k_proj.weight", "model.layers.{}.self_attn.v_proj.weight",
    "model.layers.{}.self_attn.o_proj.weight",
    "model.layers.{}.self_attn.q_norm.weight", "model.layers.{}.self_attn.k_norm.weight", nullptr, nullptr, nullptr};
const DecoderNames kStandardGguf = {
    "token_embd.weight", "output_norm.weight", "output.weight",
    "blk.{}.attn_norm.weight", "blk.{}.ffn_norm.weight",
    "blk.{}.ffn_gate.weight", "blk.{}.ffn_up.weight", "blk.{}.ffn_down.weight",
    "blk.{}.attn_q.weight", "blk.{}.attn_k.weight", "blk.{}.attn_v.weight", "blk.{}.attn_output.weight",
    "blk.{}.attn_q_norm.weight", "blk.{}.attn_k_norm.weight", nullptr, nullptr, nullptr};

Result<int32_t> required_i32(ConfigReader& c, std::string_view key, int64_t min, int64_t max) {
  ESPALIER_ASSIGN(const int64_t v, c.required_int(key, min, max));
  return static_cast<int32_t>(v);
}

Result<float> required_f32(ConfigReader& c, std::string_view key) {
  ESPALIER_ASSIGN(const double v, c.required_number(key, 0, 1));
  return static_cast<float>(v);
}

Status read_heads(ConfigReader& c, DecoderShape& s, std::string_view heads, std::string_view kv_heads, std::string_view head_dim) {
  ESPALIER_ASSIGN(s.n_heads, required_i32(c, heads, 1, kMaxHeads));
  ESPALIER_ASSIGN(s.n_kv_heads, required_i32(c, kv_heads, 1, kMaxHeads));
  if (s.n_heads % s.n_kv_heads != 0) return c.error(kv_heads, "expected a divisor of the " + std::to_string(s.n_heads) + " query heads, found " + std::to_string(s.n_kv_heads));
  ESPALIER_ASSIGN(const std::optional<int64_t> hd, c.optional_int(head_dim, 2, kMaxHeadDim));
  if (!hd && s.hidden % s.n_heads != 0) return c.error(head_dim, "is missing, and the hidden size is no multiple of the heads");
  s.head_dim = static_cast<int32_t>(hd.value_or(s.hidden / s.n_heads));
  if (s.head_dim < 2 || s.head_dim % 2 != 0) return c.error(head_dim, "expected an even head size, found " + std::to_string(s.head_dim));
  return {};
}

Status read_standard_hf(ConfigReader& c, DecoderShape& s) {
  ESPALIER_ASSIGN(s.hidden, required_i32(c, "hidden_size", 1, kMaxWidth));
  ESPALIER_ASSIGN(s.ffn, required_i32(c, "intermediate_size", 1, kMaxWidth));
  ESPALIER_ASSIGN(const int32_t layers, required_i32(c, "num_hidden_layers", 1, kMaxLayers));
  s.attention.assign(static_cast<size_t>(layers), true);
  ESPALIER_TRY(read_heads(c, s, "num_attention_heads", "num_key_value_heads", "head_dim"));
  ESPALIER_ASSIGN(s.eps, required_f32(c, "rms_norm_eps"));
  ESPALIER_TRY(read_activation(c, "hidden_act"));
  ESPALIER_ASSIGN(s.rope, read_hf_rope(c, s.head_dim, {"rope_theta"}));
  ESPALIER_ASSIGN(const std::optional<bool> tied, c.optional_bool("tie_word_embeddings"));
  s.tied = tied.value_or(false);
  return {};
}

Status read_gguf_sizes(ConfigReader& c, DecoderShape& s) {
  ESPALIER_ASSIGN(s.hidden, required_i32(c, "embedding_length", 1, kMaxWidth));
  ESPALIER_ASSIGN(s.ffn, required_i32(c, "feed_forward_length", 1, kMaxWidth));
  ESPALIER_ASSIGN(const int32_t layers, required_i32(c, "block_count", 1, kMaxLayers));
  s.attention.assign(static_cast<size_t>(layers), true);
  ESPALIER_ASSIGN(s.n_heads, required_i32(c, "attention.head_count", 1, kMaxHeads));
  ESPALIER_ASSIGN(s.eps, required_f32(c, "attention.layer_norm_rms_epsilon"));
  return {};
}

Status finish_gguf_heads(ConfigReader& c, DecoderShape& s) {
  if (s.n_kv_heads == 0) s.n_kv_heads = s.n_heads;  // a model without attention layers
  if (s.n_heads % s.n_kv_heads != 0) return c.error("attention.head_count_kv", "expected a divisor of " + std::to_string(s.n_heads) + ", found " + std::to_string(s.n_kv_heads));
  ESPALIER_ASSIGN(const std::optional<int64_t> key, c.optional_int("attention.key_length", 2, kMaxHeadDim));
  ESPALIER_ASSIGN(const std::optional<int64_t> value, c.optional_int("attention.value_length", 2, kMaxHeadDim));
  if (!key && s.hidden % s.n_heads != 0) return c.error("attention.key_length", "is missing, and the hidden size is no multiple of the heads");
  s.head_dim = static_cast<int32_t>(key.value_or(s.hidden / s.n_heads));
  if (value && *value != s.head_dim) return c.error("attention.value_length", "expected the key length " + std::to_string(s.head_dim) + ", found " + std::to_string(*value));
  if (s.head_dim < 2 || s.head_dim % 2 != 0) return c.error("attention.key_length", "expected an even head size, found " + std::to_string(s.head_dim));
  return {};
}

Status read_standard_gguf(ConfigReader& c, DecoderShape& s) {
  ESPALIER_TRY(read_gguf_sizes(c, s));
  ESPALIER_ASSIGN(s.n_kv_heads, required_i32(c, "attention.head_count_kv", 1, kMaxHeads));
  return finish_gguf_heads(c, s);
}

const DecoderNames& file_names(const Checkpoint& checkpoint, const DecoderNames& canonical, const DecoderNames& gguf) {
  return is_converted(checkpoint.kind()) ? canonical : gguf;
}

void find_gguf_biases(const Checkpoint& checkpoint, DecoderShape& s, const DecoderNames& file) {
  const auto has = [&](const char* weight) { return checkpoint.find(bias_name(layer_name(weight, 0))) != nullptr; };
  s.q_bias = has(file.q);
  s.k_bias = has(file.k);
  s.v_bias = has(file.v);
  s.o_bias = has(file.o);
  s.ffn_bias = has(file.gate);
}

namespace {

// The config's own count of rows may be smaller than the table (padding), never larger.
Status check_vocabulary(ConfigReader& c, const DecoderShape& s) {
  ESPALIER_ASSIGN(const std::optional<int64_t> v, c.optional_int("vocab_size", 1, INT32_MAX));
  if (v && *v > s.vocabulary) return c.error("vocab_size", "says " + std::to_string(*v) + ", and the embedding has " + std::to_string(s.vocabulary) + " rows");
  return {};
}

// A tensor that no weight of the program reads may be a part of the maths that this build does not know.
Status refuse_unclaimed(const ModelPlan& plan, const Checkpoint& checkpoint, const DecoderShape& s, const DecoderNames& file) {
  std::vector<std::string> claimed;
  for (const WeightSource& source : plan.sources) claimed.push_back(source.tensor);
  claimed.push_back("rope_freqs.weight");
  if (s.tied) claimed.push_back(file.head);  // a copy of the embedding that some exporters write
  std::vector<std::string> left = checkpoint.unclaimed(claimed);
  std::erase_if(left, [](const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); });
  if (left.empty()) return {};
  return unsupported("tensor " + left[0] + " is not known for the " + s.family + " family" +
                         (left.size() > 1 ? " (nor are " + std::to_string(left.size() - 1) + " others)" : "") + "; leaving it out would change the model",
                     left[0]);
}

}  // namespace

Result<ModelPlan> finish_plan(ConfigReader& c, const Checkpoint& checkpoint, const DecoderShape& s, const DecoderNames& canonical,
                              const DecoderNames& file, int32_t context) {
  ESPALIER_TRY(check_vocabulary(c, s));
  ignore_common_keys(c);
  std::vector<std::string> notices;
  ESPALIER_TRY(finish_config(c, checkpoint, notices));
  ESPALIER_ASSIGN(ModelPlan plan, build_decoder(s, canonical, file));
  if (is_converted(checkpoint.kind())) {
    for (WeightSource& source : plan.sources) source.row_order.clear();  // rows were put in order when it was written
  } else {
    ESPALIER_TRY(refuse_unclaimed(plan, checkpoint, s, file));
  }
  plan.context_length = context;
  plan.notices = std::move(notices);
  return plan;
}

Result<ModelPlan> finish_gguf_plan(ConfigReader& c, const Checkpoint& checkpoint, DecoderShape& s, const DecoderNames& canonical,
                                   const DecoderNames& file) {
  ESPALIER_ASSIGN(s.rope, read_gguf_rope(c, checkpoint, s.head_dim));
  ESPALIER_ASSIGN(s.vocabulary, table_rows(checkpoint, file, s.hidden));
  ESPALIER_ASSIGN(const int32_t context, required_i32(c, "context_length", 1, INT32_MAX));
  s.tied = checkpoint.find(file.head) == nullptr;
  return finish_plan(c, checkpoint, s, canonical, file, context);
}

}  // namespace models

namespace {

constexpr int32_t kScaleMax = 60;  // 2^120 is within fp32

std::string architecture_text(const Checkpoint& checkpoint) {
  const Value& config = checkpoint.config();
  for (const char* key : {"general.architecture", "model_type"})
    if (const Value* v = config.find(key); v != nullptr && v->is_string()) return v->as_string();
  if (const Value* v = config.find("architectures"); v != nullptr && v->is_array() && !v->as_array().empty() && v->as_array()[0].is_string())
    return v->as_array()[0].as_string();
  return {};
}

// `architectures` names the class and wins where it is given: an encoder shares its model_type with the decoder.
bool class_matches(const Checkpoint& checkpoint, const Family& family) {
  const Value* list = checkpoint.config().find("architectures");
  if (list == nullptr || !list->is_array() || list->as_array().empty()) return true;
  return list->as_array()[0].is_string() && list->as_array()[0].as_string() == family.architecture;
}

std::string_view metadata_of(const Checkpoint& checkpoint, const std::string& key) {
  for (const auto& [k, v] : checkpoint.container_metadata())
    if (k == key) return v;
  return {};
}

// A norm that reads values times 2^n has an eps times 2^2n.
Status follow_norm(const Checkpoint& checkpoint, const std::string& weight, float& eps) {
  const std::string key = "norm." + weight;
  const std::string_view text = metadata_of(checkpoint, key);
  if (text.empty()) return {};
  int32_t exponent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  if (error != std::errc() || end != text.data() + text.size() || exponent < -kScaleMax || exponent > kScaleMax)
    return corrupt(checkpoint.path() + ": " + key + ": expected an exponent from -" + std::to_string(kScaleMax) + " to " + std::to_string(kScaleMax), key);
  eps = std::ldexp(eps, 2 * exponent);
  return {};
}

// A folder converted for NPUs has powers of two folded into its weights. Its K/V and frames are other numbers than the source's, so its
// states must not be taken for those: the family's name, and with it the program's hash, says which scales they have.
Status follow_scales(const Checkpoint& checkpoint, Program& program) {
  if (checkpoint.kind() != CheckpointKind::npu) return {};
  const std::string_view scales = metadata_of(checkpoint, "espalier.scales");
  if (scales.empty()) return {};
  for (Function& f : program.functions)
    for (Op& op : f.ops) {
      if (op.weights.empty() || op.weights[0] == kNone) continue;
      const std::string& weight = program.weights[static_cast<size_t>(op.weights[0])].name;
      if (op.kind() == OpKind::rms_norm) ESPALIER_TRY(follow_norm(checkpoint, weight, std::get<RmsNormAttr>(op.attr).eps));
      if (op.kind() == OpKind::qk_norm_rope) ESPALIER_TRY(follow_norm(checkpoint, weight, std::get<QkNormRopeAttr>(op.attr).eps));
    }
  program.family += " (scaled: " + std::string(scales) + ")";
  for (const Function& f : program.functions)
    for (const Op& op : f.ops) {
      if (op.kind() != OpKind::embed && op.kind() != OpKind::head) continue;
      const std::string_view words = metadata_of(checkpoint, "matrix." + program.weights[static_cast<size_t>(op.weights[0])].name);
      if (packed_word(words, "exponent") != "0" && program.family.find(models::kScaledEnds) == std::string::npos) program.family += models::kScaledEnds;
    }
  return {};
}

}  // namespace

Result<ModelPlan> plan_model(const Checkpoint& checkpoint) {
  const std::string name = architecture_text(checkpoint);
  std::string known;
  for (const Family& family : families()) {
    if (name == family.name || name == family.architecture) {
      if (!class_matches(checkpoint, family))
        return unsupported(models::config_name(checkpoint) + ": architectures: expected " + family.architecture + ", found " +
                               checkpoint.config().find("architectures")->as_array()[0].type_name() + " " +
                               (checkpoint.config().find("architectures")->as_array()[0].is_string() ? checkpoint.config().find("architectures")->as_array()[0].as_string() : "") +
                               ", which is not implemented",
                           "architectures");
      ESPALIER_ASSIGN(ModelPlan plan, family.plan(checkpoint));
      ESPALIER_TRY(follow_scales(checkpoint, plan.program));
      return plan;
    }
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  if (name.empty()) return corrupt(models::config_name(checkpoint) + ": names no architecture (model_type); known are " + known);
  return unsupported(models::config_name(checkpoint) + ": architecture '" + name + "' is not implemented; known are " + known, "model_type");
}

namespace {

std::vector<float> permuted(const std::vector<float>& in, const std::vector<uint32_t>& order) {
  if (order.empty()) return in;
  std::vector<float> out(in.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = in[order[i]];
  return out;
}

}  // namespace

Result<WeightSet> bind_weights(const ModelPlan& plan, const Checkpoint& checkpoint) {
  WeightSet set;
  set.entries.resize(plan.program.weights.size());
  for (size_t i = 0; i < set.entries.size(); ++i) {
    const WeightDecl& decl = plan.program.weights[i];
    const WeightSource& source = plan.sources[i];
    if (!decl.owner.empty()) continue;
    const auto rows = static_cast<uint64_t>(decl.rows), cols = static_cast<uint64_t>(decl.cols);
    if (decl.kind == WeightDecl::Kind::matrix) {
      ESPALIER_ASSIGN(SourceMatrix matrix, checkpoint.matrix(source.tensor, rows, cols));
      set.entries[i].matrix = source.row_order.empty() ? std::move(matrix) : matrix.with_row_order(source.row_order);
    } else if (decl.kind == WeightDecl::Kind::taps) {
      const uint64_t shape[] = {rows, cols};
      ESPALIER_ASSIGN(set.entries[i].vector, checkpoint.floats(source.tensor, shape));
    } else {
      ESPALIER_ASSIGN(const std::vector<float> vector, checkpoint.vector(source.tensor, cols));
      set.entries[i].vector = permuted(vector, source.row_order);
    }
  }
  return set;
}

}  // namespace espalier
