// Sources: DeepSpec modeling/dspark/qwen3, llama.cpp conversion/qwen.py and src/models/dflash.cpp.
#include "models/dspark.h"

#include <algorithm>

#include "models/decoder.h"
#include "models/families.h"
#include "program/builder.h"

namespace espalier {
namespace models {
namespace {

struct DrafterNames {
  const char *fc, *hidden_norm, *norm, *embed, *head;
  const char *mixer_norm, *ffn_norm, *gate, *up, *down, *q, *k, *v, *o, *q_norm, *k_norm;
  const char *w1, *w2, *confidence;
};
constexpr DrafterNames kHf = {
    "fc.weight", "hidden_norm.weight", "norm.weight", "embed_tokens.weight", "lm_head.weight",
    "layers.{}.input_layernorm.weight", "layers.{}.post_attention_layernorm.weight",
    "layers.{}.mlp.gate_proj.weight", "layers.{}.mlp.up_proj.weight", "layers.{}.mlp.down_proj.weight",
    "layers.{}.self_attn.q_proj.weight", "layers.{}.self_attn.k_proj.weight", "layers.{}.self_attn.v_proj.weight",
    "layers.{}.self_attn.o_proj.weight", "layers.{}.self_attn.q_norm.weight", "layers.{}.self_attn.k_norm.weight",
    "markov_head.markov_w1.weight", "markov_head.markov_w2.weight", "confidence_head.proj.weight"};
constexpr DrafterNames kGguf = {
    "fc.weight", "enc.output_norm.weight", "output_norm.weight", "token_embd.weight", "output.weight",
    "blk.{}.attn_norm.weight", "blk.{}.ffn_norm.weight",
    "blk.{}.ffn_gate.weight", "blk.{}.ffn_up.weight", "blk.{}.ffn_down.weight",
    "blk.{}.attn_q.weight", "blk.{}.attn_k.weight", "blk.{}.attn_v.weight",
    "blk.{}.attn_output.weight", "blk.{}.attn_q_norm.weight", "blk.{}.attn_k_norm.weight",
    "markov_w1.weight", "markov_w2.weight", "conf_proj.weight"};
constexpr const char* kGateProjection = "markov_head.gate_proj.weight";
constexpr const char* kJointProjection = "markov_head.joint_proj.weight";

constexpr const char* kArchitectures[] = {"Lfm2DSparkDraftModel", "Qwen3DSparkModel", "DSparkDraftModel"};
constexpr const char* kTrainingKeys[] = {"num_anchors", "runtime_block_size", "sliding_window", "max_window_layers"};
constexpr int64_t kMaxBlock = 64;
constexpr int64_t kMaxRank = 1 << 16;

// What a config says beyond the shape of the layers.
struct DrafterShape {
  DecoderShape layers{"dspark"};
  int32_t block_size = 0, mask_token = 0;
  std::vector<int32_t> taps;
  MarkovKind kind = MarkovKind::none;
  int32_t rank = 0;
  std::optional<bool> confidence, confidence_with_markov;  // as the config says; else as the tensors say
  bool tied = false;  // a head that is missing beside an own embedding is that embedding
};

const Op* find_op(const Program& program, OpKind kind) {
  const Function* step = program.find(Role::step);
  if (step == nullptr) return nullptr;
  const auto at = std::find_if(step->ops.begin(), step->ops.end(), [&](const Op& op) { return op.kind() == kind; });
  return at == step->ops.end() ? nullptr : &*at;
}

const std::vector<RefusedKey>& refused() {
  static const Value kNull;
  static const std::vector<RefusedKey> table = {
      {"sample_from_anchor", true, "blocks whose first row proposes nothing are not implemented"},
      {"draft_vocab_size", kNull, "a reduced draft vocabulary is not implemented"},
      {"draft_window_size", kNull, "a window of the drafter's context is not implemented"},
      {"transformer_layer_config", kNull, "the config form of the speculators package is not read; export the drafter in its published form"},
      {"aux_hidden_state_layer_ids", kNull, "the config form of the speculators package is not read; export the drafter in its published form"},
      {"use_swa", false, "sliding-window attention is not implemented"},
      {"swa_window_size", kNull, "sliding-window attention is not implemented"},
      {"causal", false, "a causal block is not implemented"},
      {"is_causal", false, "a causal block is not implemented"},
      {"attention_value_scale", 1.0, "a scale on values is not implemented"},
      {"output_multiplier", 1.0, "a scale on logits is not implemented"},
      {"input_embedding_scale", 1.0, "a scale on embeddings is not implemented"},
      {"*softcap*", kNull, "soft-capping of logits is not implemented"},
  };
  return table;
}

Status expect_equal(ConfigReader& c, std::string_view key, const char* what, int64_t found, int64_t target) {
  if (found == target) return {};
  return c.error(key, "the drafter was made for a target with " + std::string(what) + " " + std::to_string(found) + ", and this one has " +
                          std::to_string(target) + ": use the drafter of this model");
}

// `first`: the number that the list gives to layer 0.
Status read_taps(ConfigReader& c, std::string_view key, int64_t first, const Program& target, DrafterShape& s) {
  ESPALIER_ASSIGN(const std::vector<int64_t> ids, c.required_ints(key, 0, INT32_MIN, INT32_MAX));
  const Function* step = target.find(Role::step);
  if (ids.empty()) return c.error(key, "names no layer: expected at least one layer of the target");
  for (int64_t id : ids) {
    const int64_t layer = id - first;
    if (layer < 0 || layer >= target.layer_count)
      return c.error(key, std::to_string(id) + " is no layer of the target, which has " + std::to_string(target.layer_count));
    if (layer == target.layer_count - 1) return c.error(key, std::to_string(id) + " is the target's last layer, whose output cannot be tapped");
    if (!s.taps.empty() && layer <= s.taps.back()) return c.error(key, "expected layers in ascending order, found " + std::to_string(id) + " behind " + std::to_string(s.taps.back() + first));
    const std::string port = "layer." + std::to_string(layer);
    if (step == nullptr || std::none_of(step->outputs.begin(), step->outputs.end(), [&](const Port& p) { return p.name == port; }))
      return unsupported("the target's program has no output " + port + " for the drafter to read", port);
    s.taps.push_back(static_cast<int32_t>(layer));
  }
  return {};
}

Status read_mask(ConfigReader& c, std::string_view key, const Program& target, DrafterShape& s) {
  ESPALIER_ASSIGN(s.mask_token, required_i32(c, key, 0, target.vocabulary - 1));
  return {};
}

Status read_markov(ConfigReader& c, DrafterShape& s) {
  ESPALIER_ASSIGN(s.rank, required_i32(c, "markov_rank", 0, kMaxRank));
  ESPALIER_ASSIGN(const std::optional<std::string> type, c.optional_string("markov_head_type"));
  ESPALIER_ASSIGN(s.confidence, c.optional_bool("enable_confidence_head"));
  ESPALIER_ASSIGN(s.confidence_with_markov, c.optional_bool("confidence_head_with_markov"));
  if (s.rank == 0) return {};
  if (!type) return c.error("markov_head_type", "is missing: expected vanilla, gated or rnn");
  if (*type == "vanilla") s.kind = MarkovKind::vanilla;
  else if (*type == "gated") s.kind = MarkovKind::gated;
  else if (*type == "rnn") s.kind = MarkovKind::rnn;
  else return c.error("markov_head_type", "expected vanilla, gated or rnn, found '" + *type + "', which is not implemented");
  return {};
}

Status check_architecture(ConfigReader& c) {
  ESPALIER_ASSIGN(const auto names, c.optional_strings("architectures", 0));
  std::string known;
  for (const char* a : kArchitectures) {
    if (names && !names->empty() && names->front() == a) return {};
    known += (known.empty() ? "" : ", ") + std::string(a);
  }
  if (!names || names->empty()) return c.error("architectures", "is missing: a drafter's are " + known);
  return unsupported(c.where() + ": architectures: '" + names->front() + "' is no drafter that this build runs; known are " + known, "architectures");
}

Status read_hf(ConfigReader& c, const Program& target, DrafterShape& s, std::vector<std::string>& notices) {
  ESPALIER_TRY(check_architecture(c));
  ESPALIER_ASSIGN(const std::optional<std::string> type, c.optional_string("model_type"));
  if (type && *type != "qwen3") return c.error("model_type", "expected layers of type qwen3, found '" + *type + "', which is not implemented for drafters");
  ESPALIER_ASSIGN(const std::optional<bool> window, c.optional_bool("use_sliding_window"));
  if (window.value_or(false)) return c.error("use_sliding_window", "is true: sliding-window attention is not implemented");
  c.ignore(kTrainingKeys);  // a window that is switched off among them
  ESPALIER_TRY(refuse_common_keys(c));
  ESPALIER_TRY(c.refuse_if_present(refused()));
  ESPALIER_TRY(read_standard_hf(c, s.layers));
  s.tied = s.layers.tied;
  ESPALIER_ASSIGN(const auto types, c.optional_strings("layer_types", s.layers.attention.size()));
  if (types)
    for (const std::string& t : *types)
      if (t != "full_attention") return c.error("layer_types", "expected full_attention, found '" + t + "', which is not implemented");
  ESPALIER_ASSIGN(const std::optional<bool> bias, c.optional_bool("attention_bias"));
  s.layers.q_bias = s.layers.k_bias = s.layers.v_bias = s.layers.o_bias = bias.value_or(false);
  ESPALIER_ASSIGN(const std::optional<bool> half_split, c.optional_bool("rope_is_neox_style"));
  s.layers.rope.interleaved = !half_split.value_or(true);

  ESPALIER_TRY(expect_equal(c, "hidden_size", "hidden size", s.layers.hidden, target.hidden));
  ESPALIER_ASSIGN(s.layers.vocabulary, required_i32(c, "vocab_size", 1, INT32_MAX));
  ESPALIER_TRY(expect_equal(c, "vocab_size", "a vocabulary of", s.layers.vocabulary, target.vocabulary));
  ESPALIER_TRY(read_markov(c, s));

  ESPALIER_ASSIGN(std::optional<ConfigReader> nested, c.optional_object("dflash_config"));
  if (nested) ESPALIER_TRY(nested->refuse_if_present(refused()));
  const auto holder = [&](std::string_view key) -> ConfigReader& {
    c.raw(key);  // known at the top level, whichever is used
    return nested && nested->has(key) ? *nested : c;
  };
  ESPALIER_ASSIGN(const int32_t layers, required_i32(holder("num_target_layers"), "num_target_layers", 1, kMaxLayers));
  ESPALIER_TRY(expect_equal(holder("num_target_layers"), "num_target_layers", "a layer count of", layers, target.layer_count));
  ESPALIER_TRY(read_taps(holder("target_layer_ids"), "target_layer_ids", 0, target, s));
  ESPALIER_TRY(read_mask(holder("mask_token_id"), "mask_token_id", target, s));
  ESPALIER_ASSIGN(s.block_size, required_i32(holder("block_size"), "block_size", 1, kMaxBlock));
  if (nested)
    for (const std::string& key : nested->unread()) notices.push_back(nested->where() + ": ignored key " + key);
  return {};
}

Status read_gguf(ConfigReader& c, const Checkpoint& checkpoint, const Program& target, DrafterShape& s) {
  ESPALIER_TRY(read_standard_gguf(c, s.layers));
  ESPALIER_ASSIGN(s.layers.rope, read_gguf_rope(c, checkpoint, s.layers.head_dim));  // q and k rows are in half-split order
  ESPALIER_TRY(expect_equal(c, "embedding_length", "hidden size", s.layers.hidden, target.hidden));
  ESPALIER_ASSIGN(const std::optional<int64_t> vocabulary, c.optional_int("vocab_size", 1, INT32_MAX));
  ESPALIER_TRY(expect_equal(c, "vocab_size", "a vocabulary of", vocabulary.value_or(target.vocabulary), target.vocabulary));
  s.layers.vocabulary = target.vocabulary;
  ESPALIER_ASSIGN(const std::optional<bool> causal, c.optional_bool("attention.causal"));
  if (causal.value_or(false)) return c.error("attention.causal", "is true: a causal block is not implemented");
  ESPALIER_ASSIGN(s.confidence, c.optional_bool("has_confidence_head"));
  if (const TensorView* w1 = checkpoint.find(kGguf.w1); w1 != nullptr) {
    ESPALIER_ASSIGN(const auto shape, checkpoint.matrix_shape(kGguf.w1));
    if (shape.second == 0 || shape.second > static_cast<uint64_t>(kMaxRank)) return corrupt(std::string(kGguf.w1) + ": a Markov head of rank " + std::to_string(shape.second));
    s.rank = static_cast<int32_t>(shape.second);
    s.kind = MarkovKind::vanilla;
  }
  ESPALIER_ASSIGN(const std::optional<bool> from_anchor, c.optional_bool("sample_from_anchor"));
  if (!from_anchor.value_or(s.kind != MarkovKind::none))
    return c.error("sample_from_anchor", "is not true: blocks whose first row proposes nothing are not implemented");
  ESPALIER_TRY(read_taps(c, "target_layers", 1, target, s));
  ESPALIER_ASSIGN(s.block_size, required_i32(c, "block_size", 1, kMaxBlock));
  ConfigReader all(checkpoint.config(), config_name(checkpoint));
  return read_mask(all, "tokenizer.ggml.mask_token_id", target, s);
}

// Writes the functions, and notes where the numbers of each weight lie.
class DrafterBuilder {
 public:
  DrafterBuilder(const DrafterShape& shape, const DrafterNames& file, const Checkpoint& checkpoint, const Program& target)
      : d_(shape), s_(shape.layers), file_(file), checkpoint_(checkpoint), target_(target),
        b_("dspark", static_cast<int32_t>(s_.attention.size()), s_.hidden, s_.vocabulary) {}

  Result<ModelPlan> build() {
    rope_ = b_.rope(s_.rope);
    for (int32_t i = 0; i < layers(); ++i) states_.push_back(b_.kv_state(i, s_.n_kv_heads, s_.head_dim));
    context();
    ESPALIER_TRY(block());
    if (d_.kind != MarkovKind::none) markov();
    ModelPlan plan;
    ESPALIER_ASSIGN(plan.program, std::move(b_).finish());
    plan.sources = std::move(sources_);
    return plan;
  }

 private:
  void context() {
    const int32_t width = static_cast<int32_t>(d_.taps.size()) * s_.hidden;
    b_.function(Role::context);
    const ValueId taps = b_.input("taps", width);
    const ValueId c = b_.rms_norm(b_.linear(taps, matrix(kHf.fc, file_.fc, kNone, s_.hidden, width)), vector(kHf.hidden_norm, file_.hidden_norm, kNone, s_.hidden), s_.eps);
    for (int32_t i = 0; i < layers(); ++i) {
      b_.layer(i);
      const ValueId k = linear(i, c, kHf.k, file_.k, kv_width(), s_.hidden, s_.k_bias);
      const ValueId v = linear(i, c, kHf.v, file_.v, kv_width(), s_.hidden, s_.v_bias);
      const auto qk = b_.qk_norm_rope({kNone, k}, kNone, vector(kHf.k_norm, file_.k_norm, i, s_.head_dim), rope_attr());
      b_.attention(qk, v, states_[static_cast<size_t>(i)], {s_.n_heads, s_.n_kv_heads, s_.head_dim, MaskKind::ancestors, true});
    }
  }

  Status block() {
    b_.function(Role::block);
    ESPALIER_ASSIGN(const WeightId table, table_weight(OpKind::embed, kHf.embed, file_.embed));
    ESPALIER_ASSIGN(const WeightId head, head_weight(table));
    ValueId h = b_.embed(table);
    for (int32_t i = 0; i < layers(); ++i) {
      b_.layer(i);
      h = b_.add(h, attention(i, b_.rms_norm(h, vector(kHf.mixer_norm, file_.mixer_norm, i, s_.hidden), s_.eps)));
      const ValueId n = b_.rms_norm(h, vector(kHf.ffn_norm, file_.ffn_norm, i, s_.hidden), s_.eps);
      const ValueId gate = linear(i, n, kHf.gate, file_.gate, s_.ffn, s_.hidden, false);
      const ValueId up = linear(i, n, kHf.up, file_.up, s_.ffn, s_.hidden, false);
      h = b_.add(h, linear(i, b_.swiglu(gate, up), kHf.down, file_.down, s_.hidden, s_.ffn, false));
    }
    b_.layer(kNone);
    const ValueId hidden = b_.rms_norm(h, vector(kHf.norm, file_.norm, kNone, s_.hidden), s_.eps);
    b_.output("hidden", hidden);
    b_.head(hidden, head);
    return {};
  }

  void markov() {
    b_.function(Role::markov);
    const ValueId direction = b_.input("direction", d_.rank);
    b_.head(direction, matrix(kHf.w2, file_.w2, kNone, s_.vocabulary, d_.rank));
  }

  ValueId attention(int32_t i, ValueId n) {
    const int32_t q_width = s_.n_heads * s_.head_dim;
    const ValueId q = linear(i, n, kHf.q, file_.q, q_width, s_.hidden, s_.q_bias);
    const ValueId k = linear(i, n, kHf.k, file_.k, kv_width(), s_.hidden, s_.k_bias);
    const ValueId v = linear(i, n, kHf.v, file_.v, kv_width(), s_.hidden, s_.v_bias);
    const WeightId q_norm = vector(kHf.q_norm, file_.q_norm, i, s_.head_dim);
    const auto qk = b_.qk_norm_rope({q, k}, q_norm, vector(kHf.k_norm, file_.k_norm, i, s_.head_dim), rope_attr());
    const ValueId o = b_.attention(qk, v, states_[static_cast<size_t>(i)], {s_.n_heads, s_.n_kv_heads, s_.head_dim, MaskKind::group, false});
    return linear(i, o, kHf.o, file_.o, s_.hidden, q_width, s_.o_bias);
  }

  // The drafter's own table where its file has one, else the one that the target's op reads.
  Result<WeightId> table_weight(OpKind kind, const char* name, const char* file) {
    const std::string own = file_name(file);
    if (checkpoint_.find(own) != nullptr) return note(b_.matrix(name, s_.vocabulary, s_.hidden), own);
    const Op* op = find_op(target_, kind);
    if (op == nullptr) return unsupported(std::string("the target's program has no ") + kOpNames[static_cast<size_t>(kind)] + " that the drafter could share");
    const WeightDecl& decl = target_.weights[static_cast<size_t>(op->weights[0])];
    return note(b_.matrix(decl.name, decl.rows, decl.cols, "target"), {});
  }
  Result<WeightId> head_weight(WeightId table) {
    const bool own_table = checkpoint_.find(file_name(file_.embed)) != nullptr;
    if (d_.tied && own_table && checkpoint_.find(file_name(file_.head)) == nullptr) return table;
    return table_weight(OpKind::head, kHf.head, file_.head);
  }

  ValueId linear(int32_t i, ValueId x, const char* name, const char* file, int32_t rows, int32_t cols, bool bias) {
    const WeightId w = matrix(name, file, i, rows, cols);
    if (!bias) return b_.linear(x, w);
    return b_.linear(x, w, note(b_.vector(bias_name(layer_name(name, i)), rows), bias_name(file_name(file, i))));
  }
  WeightId matrix(const char* name, const char* file, int32_t i, int32_t rows, int32_t cols) {
    return note(b_.matrix(layer_name(name, i), rows, cols), file_name(file, i));
  }
  WeightId vector(const char* name, const char* file, int32_t i, int32_t n) { return note(b_.vector(layer_name(name, i), n), file_name(file, i)); }
  WeightId note(WeightId w, std::string tensor) {
    if (static_cast<size_t>(w) >= sources_.size()) sources_.resize(static_cast<size_t>(w) + 1);
    sources_[static_cast<size_t>(w)].tensor = std::move(tensor);
    return w;
  }
  std::string file_name(const char* pattern, int32_t i = kNone) const;

  QkNormRopeAttr rope_attr() const {
    return {s_.n_heads, s_.n_kv_heads, s_.head_dim, s_.eps, 1.0f / __builtin_sqrtf(static_cast<float>(s_.head_dim)), rope_};
  }
  int32_t kv_width() const { return s_.n_kv_heads * s_.head_dim; }
  int32_t layers() const { return static_cast<int32_t>(s_.attention.size()); }

  const DrafterShape& d_;
  const DecoderShape& s_;
  const DrafterNames& file_;
  const Checkpoint& checkpoint_;
  const Program& target_;
  ProgramBuilder b_;
  int32_t rope_ = 0;
  std::vector<StateId> states_;
  std::vector<WeightSource> sources_;
};

// Exporters differ in a leading "model.".
std::string find_name(const Checkpoint& checkpoint, std::string name) {
  std::string prefixed = "model." + name;
  return checkpoint.find(prefixed) != nullptr ? prefixed : name;
}

std::string DrafterBuilder::file_name(const char* pattern, int32_t i) const { return find_name(checkpoint_, layer_name(pattern, i)); }

// Reads the numbers behind the block, and claims their tensors.
class HeadReader {
 public:
  HeadReader(const Checkpoint& checkpoint, std::vector<std::string>& claimed) : checkpoint_(checkpoint), claimed_(claimed) {}

  Result<DraftHead> read(const DrafterShape& d, const DrafterNames& file) {
    DraftHead h;
    h.kind = d.kind;
    h.vocabulary = d.layers.vocabulary;
    h.hidden = d.layers.hidden;
    h.rank = d.rank;
    const int64_t rank = d.rank, hidden = d.layers.hidden;
    if (h.kind != MarkovKind::none) {
      ESPALIER_ASSIGN(h.w1, table(file.w1, h.vocabulary, h.rank));
      ESPALIER_ASSIGN(h.w2, table(file.w2, h.vocabulary, h.rank));
    }
    if (h.kind == MarkovKind::gated) ESPALIER_TRY(affine(kGateProjection, rank, hidden + rank, h.gate_weight, h.gate_bias));
    if (h.kind == MarkovKind::rnn) ESPALIER_TRY(affine(kJointProjection, 3 * rank, 2 * rank + hidden, h.joint_weight, h.joint_bias));
    ESPALIER_TRY(confidence(d, file.confidence, h));
    return h;
  }

 private:
  Result<SourceMatrix> claim(const std::string& name, int64_t rows, int64_t cols) {
    claimed_.push_back(name);
    return checkpoint_.matrix(name, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols));
  }

  static std::vector<float> numbers(const SourceMatrix& m) {
    std::vector<float> out(m.rows() * m.cols());
    m.dequantize(0, m.rows(), out.data());
    return out;
  }

  Result<FloatTable> table(const char* pattern, int32_t rows, int32_t cols) {
    const std::string name = find_name(checkpoint_, pattern);
    ESPALIER_ASSIGN(const SourceMatrix m, claim(name, rows, cols));
    if (m.form().kind != MatrixForm::Kind::floats) return float_table(numbers(m), rows, cols);
    const StorageType type = m.form().storage;
    const FloatTable::Type as = type == StorageType::bf16 ? FloatTable::Type::bf16 : type == StorageType::f16 ? FloatTable::Type::f16 : FloatTable::Type::f32;
    return FloatTable{as, rows, cols, checkpoint_.find(name)->data.data(), nullptr};
  }

  Status affine(const char* pattern, int64_t rows, int64_t cols, std::vector<float>& weight, std::vector<float>& bias) {
    const std::string name = find_name(checkpoint_, pattern);
    ESPALIER_ASSIGN(const SourceMatrix m, claim(name, rows, cols));
    weight = numbers(m);
    claimed_.push_back(bias_name(name));
    ESPALIER_ASSIGN(bias, checkpoint_.vector(bias_name(name), static_cast<uint64_t>(rows)));
    return {};
  }

  // Its width tells whether it reads the token's row of w1; a config that says otherwise is refused.
  Status confidence(const DrafterShape& d, const char* pattern, DraftHead& h) {
    const std::string name = find_name(checkpoint_, pattern);
    const TensorView* tensor = checkpoint_.find(name);
    if (!d.confidence.value_or(tensor != nullptr)) return {};
    const uint64_t hidden = static_cast<uint64_t>(h.hidden), wide = hidden + static_cast<uint64_t>(h.rank);
    h.confidence_with_markov = d.confidence_with_markov.value_or(tensor != nullptr && tensor->elements() == wide) && h.rank > 0;
    ESPALIER_ASSIGN(const SourceMatrix m, claim(name, 1, static_cast<int64_t>(h.confidence_with_markov ? wide : hidden)));
    h.confidence_weight = numbers(m);
    const std::string bias = bias_name(name);
    if (is_gguf(checkpoint_) && checkpoint_.find(bias) == nullptr) return {};
    claimed_.push_back(bias);
    ESPALIER_ASSIGN(const std::vector<float> one, checkpoint_.vector(bias, 1));
    h.confidence_bias = one[0];
    return {};
  }

  const Checkpoint& checkpoint_;
  std::vector<std::string>& claimed_;
};

Status refuse_unknown_tensors(const Checkpoint& checkpoint, std::vector<std::string> claimed) {
  if (is_gguf(checkpoint)) claimed.push_back("rope_freqs.weight");
  std::vector<std::string> left = checkpoint.unclaimed(claimed);
  std::erase_if(left, [](const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); });
  if (left.empty()) return {};
  const std::string& first = left[0];
  if (first.ends_with("d2t") || first.ends_with("t2d")) return unsupported("tensor " + first + ": a reduced draft vocabulary is not implemented", first);
  return unsupported("tensor " + first + " is not known for a drafter" + (left.size() > 1 ? " (nor are " + std::to_string(left.size() - 1) + " others)" : "") +
                         "; leaving it out would change what it drafts", first);
}

Status read_shape(ConfigReader& c, const Checkpoint& checkpoint, const Program& target, DrafterShape& shape, ModelPlan& plan) {
  const bool gguf = is_gguf(checkpoint);
  ESPALIER_TRY(gguf ? read_gguf(c, checkpoint, target, shape) : read_hf(c, target, shape, plan.notices));
  ESPALIER_ASSIGN(plan.context_length, required_i32(c, gguf ? "context_length" : "max_position_embeddings", 1, INT32_MAX));
  if (!gguf) ignore_common_keys(c);
  return finish_config(c, checkpoint, plan.notices);
}

}  // namespace
}  // namespace models

Result<DrafterPlan> plan_drafter(const Checkpoint& drafter, const Program& target) {
  using namespace models;
  if (is_converted(drafter.kind())) return unsupported(drafter.path() + ": a converted folder is no drafter; use the drafter's own files");
  if (target.family.find(kScaledEnds) != std::string::npos)
    return unsupported("the target was converted with a scaled embedding or head, which this drafter would share; use the target's own files", "drafter");
  const bool gguf = is_gguf(drafter);
  if (const Value* a = drafter.config().find("general.architecture"); gguf && (!a->is_string() || a->as_string() != "dflash"))
    return unsupported(drafter.path() + ": general.architecture is " + (a->is_string() ? "'" + a->as_string() + "'" : kind_of(*a)) + ": expected 'dflash', a drafter", "general.architecture");
  DrafterShape shape;
  ModelPlan read;
  ConfigReader c(drafter.config(), config_name(drafter), gguf ? "dflash." : "");
  ESPALIER_TRY(read_shape(c, drafter, target, shape, read));
  DrafterPlan plan;
  const DrafterNames& file = gguf ? kGguf : kHf;
  ESPALIER_ASSIGN(plan.model, DrafterBuilder(shape, file, drafter, target).build());
  plan.model.context_length = read.context_length;
  plan.model.notices = std::move(read.notices);
  std::vector<std::string> claimed;
  for (const WeightSource& source : plan.model.sources) claimed.push_back(source.tensor);
  ESPALIER_ASSIGN(plan.head, HeadReader(drafter, claimed).read(shape, file));
  ESPALIER_TRY(refuse_unknown_tensors(drafter, std::move(claimed)));
  plan.block_size = shape.block_size;
  plan.mask_token = shape.mask_token;
  plan.tap_layers = std::move(shape.taps);
  return plan;
}

Result<WeightSet> bind_drafter_weights(const DrafterPlan& plan, const Checkpoint& drafter, const Program& target, const WeightSet& target_weights) {
  ESPALIER_ASSIGN(WeightSet set, bind_weights(plan.model, drafter));
  ESPALIER_TRY(share_weights(plan.model.program, target, target_weights, set));
  return set;
}

}  // namespace espalier
