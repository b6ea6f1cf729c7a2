// What is refused of a drafter's files, each with a sentence that says why; and that no config or tensor list brings it down.
#include <gtest/gtest.h>

#include <functional>

#include "tiny_drafters.h"

namespace espalier::test {
namespace {

// A fixture's drafter whose config and tensors may be changed.
struct Changeable {
  std::unique_ptr<Checkpoint> target, drafter;
  ModelPlan target_plan;
  Value config;
  std::vector<TensorView> tensors;

  Result<DrafterPlan> plan() {
    CheckpointParts parts;
    parts.kind = drafter->kind();
    parts.path = "drafter";
    parts.config = config;
    parts.tensors = tensors;
    Result<Checkpoint> made = Checkpoint::make(std::move(parts));
    if (!made.ok()) return std::move(made).status();
    changed = std::make_unique<Checkpoint>(std::move(made).value());
    return plan_drafter(*changed, target_plan.program);
  }
  // Plan and numbers, as an engine takes them.
  Status load() {
    ESPALIER_ASSIGN(const WeightSet target_weights, bind_weights(target_plan, *target));
    ESPALIER_ASSIGN(const DrafterPlan made, plan());
    ESPALIER_ASSIGN(const WeightSet weights, bind_drafter_weights(made, *changed, target_plan.program, target_weights));
    return check_weights(made.model.program, weights);
  }
  void erase(const std::string& key) {
    std::erase_if(config.as_object(), [&](const Value::Member& m) { return m.first == key; });
  }
  std::unique_ptr<Checkpoint> changed;
};

Changeable change(const std::string& name) {
  const TinyDrafter tiny = load_drafter(name);
  Changeable out;
  out.target = std::make_unique<Checkpoint>(Checkpoint::open(tiny.target.path).value());
  out.drafter = std::make_unique<Checkpoint>(Checkpoint::open(drafter_path(name)).value());
  out.target_plan = plan_model(*out.target).value();
  out.config = out.drafter->config();
  out.tensors.assign(out.drafter->tensors().begin(), out.drafter->tensors().end());
  return out;
}

struct Refusal {
  const char* drafter;
  const char* key;
  Value value;
  const char* says;
};

Value ints(std::vector<int64_t> list) {
  Value out = Value::array();
  for (int64_t i : list) out.push(i);
  return out;
}

TEST(DrafterPlan, configs_that_do_not_fit_are_refused_with_the_reason) {
  const Value null;
  const Refusal cases[] = {
      {"vanilla-half-split", "hidden_size", 128, "hidden size 128, and this one has 64"},
      {"vanilla-half-split", "vocab_size", 300, "a vocabulary of 300, and this one has 288"},
      {"vanilla-half-split", "num_target_layers", 6, "a layer count of 6, and this one has 5"},
      {"vanilla-half-split", "num_target_layers", null, "num_target_layers: expected an integer"},
      {"vanilla-half-split", "target_layer_ids", null, "target_layer_ids: expected a list"},
      {"vanilla-half-split", "target_layer_ids", Value::array(), "names no layer"},
      {"vanilla-half-split", "target_layer_ids", ints({-1, 2, 3}), "-1 is no layer of the target, which has 5"},
      {"vanilla-half-split", "target_layer_ids", ints({0, 2, 5}), "5 is no layer of the target, which has 5"},
      {"vanilla-half-split", "target_layer_ids", ints({0, 2, 4}), "4 is the target's last layer"},
      {"vanilla-half-split", "target_layer_ids", ints({0, 3, 2}), "ascending order, found 2 behind 3"},
      {"vanilla-half-split", "target_layer_ids", ints({0, 2}), "fc.weight"},
      {"vanilla-half-split", "mask_token_id", 288, "mask_token_id: expected an integer from 0 to 287, found 288"},
      {"vanilla-half-split", "mask_token_id", null, "mask_token_id"},
      {"vanilla-half-split", "block_size", 0, "block_size"},
      {"vanilla-half-split", "block_size", 65, "block_size"},
      {"vanilla-half-split", "markov_head_type", "transformer", "expected vanilla, gated or rnn, found 'transformer'"},
      {"vanilla-half-split", "markov_head_type", null, "markov_head_type: is missing"},
      {"vanilla-half-split", "markov_head_type", "gated", "markov_head.gate_proj.weight is missing"},
      {"vanilla-half-split", "markov_head_type", "rnn", "markov_head.joint_proj.weight is missing"},
      {"vanilla-half-split", "markov_rank", null, "markov_rank: expected an integer"},
      {"vanilla-half-split", "markov_rank", 16, "markov_w1.weight: expected (288, 16), found (288, 32)"},
      {"vanilla-half-split", "markov_rank", 0, "confidence_head.proj.weight"},
      {"none", "markov_rank", 8, "markov_head_type: is missing"},
      {"none", "enable_confidence_head", true, "confidence_head.proj.weight is missing"},
      {"vanilla-half-split", "enable_confidence_head", false, "confidence_head.proj.bias is not known for a drafter (nor are 1 others)"},
      {"vanilla-half-split", "confidence_head_with_markov", false, "confidence_head.proj.weight: expected (1, 64), found (1, 96)"},
      {"vanilla-half-split", "rope_theta", null, "rope_theta"},
      {"vanilla-half-split", "rms_norm_eps", null, "rms_norm_eps"},
      {"vanilla-half-split", "head_dim", 31, "an even head size"},
      {"vanilla-half-split", "num_attention_heads", 3, "num_key_value_heads"},
      {"vanilla-half-split", "hidden_act", "gelu", "expected silu, found 'gelu'"},
      {"vanilla-half-split", "rope_is_neox_style", "no", "rope_is_neox_style: expected true or false"},
      {"vanilla-half-split", "layer_types", Value(Value::Array{"sliding_attention"}), "expected full_attention"},
      {"vanilla-half-split", "use_sliding_window", true, "sliding-window attention is not implemented"},
      {"vanilla-half-split", "attention_bias", true, "self_attn.k_proj.bias is missing"},
      {"vanilla-half-split", "architectures", Value(Value::Array{"DFlashDraftModel"}), "'DFlashDraftModel' is no drafter that this build runs"},
      {"vanilla-half-split", "architectures", null, "architectures: is missing"},
      {"vanilla-half-split", "model_type", "gemma4", "expected layers of type qwen3, found 'gemma4'"},
      {"vanilla-half-split", "sample_from_anchor", false, "whose first row proposes nothing"},
      {"vanilla-half-split", "draft_vocab_size", 100, "a reduced draft vocabulary"},
      {"vanilla-half-split", "draft_window_size", 512, "a window of the drafter's context"},
      {"vanilla-half-split", "aux_hidden_state_layer_ids", ints({1, 2}), "speculators"},
      {"vanilla-half-split", "final_logit_softcapping", 30.0, "soft-capping"},
      {"vanilla-half-split", "num_experts", 8, "mixture of experts"},
      {"vanilla-half-split", "dflash_config", "x", "dflash_config: expected an object"},
      {"gguf-f16", "general.architecture", "qwen3", "general.architecture is 'qwen3': expected 'dflash'"},
      {"gguf-f16", "dflash.target_layers", ints({0, 3, 4}), "0 is no layer of the target"},
      {"gguf-f16", "dflash.target_layers", ints({1, 3, 5}), "5 is the target's last layer"},
      {"gguf-f16", "dflash.sample_from_anchor", false, "is not true"},
      {"gguf-f16", "dflash.embedding_length", 32, "hidden size 32, and this one has 64"},
      {"gguf-f16", "dflash.vocab_size", 99, "a vocabulary of 99, and this one has 288"},
      {"gguf-f16", "dflash.attention.causal", true, "a causal block"},
      {"gguf-f16", "dflash.conv_kernel_size", 3, "unknown key dflash.conv_kernel_size"},
      {"gguf-f16", "tokenizer.ggml.mask_token_id", null, "tokenizer.ggml.mask_token_id"},
      {"gguf-f16", "tokenizer.ggml.mask_token_id", 9999, "from 0 to 287, found 9999"},
  };
  for (const Refusal& c : cases) {
    Changeable d = change(c.drafter);
    if (c.value.is_null()) d.erase(c.key);
    else d.config.set(c.key, c.value);
    const Status status = d.load();
    ASSERT_FALSE(status.ok()) << c.drafter << " " << c.key;
    EXPECT_NE(status.message().find(c.says), std::string::npos) << c.drafter << " " << c.key << ": " << status.message();
  }
}

TEST(DrafterPlan, keys_of_dflash_config_come_before_those_of_the_top_level) {
  Changeable d = change("vanilla-interleaved");  // whose top level says another block size
  EXPECT_EQ(d.plan().value().block_size, 9);
  d.config.find("dflash_config")->set("num_target_layers", 7);
  EXPECT_NE(d.load().message().find("dflash_config: num_target_layers: the drafter was made for"), std::string::npos) << d.load().message();
  d.config.find("dflash_config")->set("num_target_layers", 5);
  d.config.find("dflash_config")->set("use_swa", true);
  EXPECT_NE(d.load().message().find("sliding-window"), std::string::npos) << d.load().message();
  d.config.find("dflash_config")->set("use_swa", false);
  d.config.find("dflash_config")->set("something_new", 3);
  const DrafterPlan plan = d.plan().value();
  ASSERT_EQ(plan.model.notices.size(), 1u);
  EXPECT_NE(plan.model.notices[0].find("something_new"), std::string::npos);
}

TEST(DrafterPlan, rope_is_half_split_unless_the_config_says_interleaved) {
  EXPECT_TRUE(change("vanilla-interleaved").plan().value().model.program.ropes[0].interleaved);
  EXPECT_FALSE(change("vanilla-half-split").plan().value().model.program.ropes[0].interleaved);
  EXPECT_FALSE(change("gguf-f16").plan().value().model.program.ropes[0].interleaved);
  Changeable d = change("vanilla-half-split");
  d.config.set("rope_is_neox_style", true);
  EXPECT_FALSE(d.plan().value().model.program.ropes[0].interleaved);
}

// The two files hold the same drafter; GGUF counts layers from one.
TEST(DrafterPlan, gguf_and_safetensors_name_the_same_taps_and_numbers) {
  Changeable a = change("vanilla-interleaved"), b = change("gguf-f16");
  const DrafterPlan hf = a.plan().value(), gguf = b.plan().value();
  EXPECT_EQ(hf.tap_layers, gguf.tap_layers);
  EXPECT_EQ(hf.block_size, gguf.block_size);
  EXPECT_EQ(hf.mask_token, gguf.mask_token);
  EXPECT_EQ(hf.head.rank, gguf.head.rank);
  EXPECT_EQ(hf.model.program.weights, gguf.model.program.weights);
}

TEST(DrafterPlan, tensors_that_are_missing_or_unknown_are_named) {
  for (const char* name : {"vanilla-half-split", "gated", "rnn", "own-tables", "gguf-q8_0"}) {
    const Changeable original = change(name);
    for (const TensorView& t : original.tensors) {
      Changeable d = change(name);
      std::erase_if(d.tensors, [&](const TensorView& other) { return other.name == t.name; });
      const Status status = d.load();
      // A table of its own may be missing: the target's is taken, and then the other one is left. The bias of a GGUF
      // file's confidence is 0 where it is missing, a GGUF file without its heads is a drafter without.
      const bool optional = t.name == "embed_tokens.weight" || t.name == "lm_head.weight" || t.name == "conf_proj.bias";
      EXPECT_EQ(status.ok(), optional) << name << " without " << t.name << ": " << status.message();
    }
    Changeable d = change(name);
    TensorView extra = d.tensors[0];
    extra.name = "layers.0.self_attn.sinks";
    d.tensors.push_back(extra);
    EXPECT_NE(d.load().message().find("layers.0.self_attn.sinks is not known for a drafter"), std::string::npos) << d.load().message();
    d.tensors.back().name = "d2t";
    EXPECT_NE(d.load().message().find("d2t: a reduced draft vocabulary"), std::string::npos) << d.load().message();
  }
}

TEST(DrafterPlan, a_target_without_the_tapped_outputs_is_refused) {
  Changeable d = change("vanilla-interleaved");
  d.target_plan.program.functions[0].outputs.clear();
  EXPECT_NE(d.load().message().find("no output layer.0"), std::string::npos) << d.load().message();
}

// Any value in any place: an answer, never a crash (the sanitizers watch).
TEST(DrafterPlan, no_config_or_shape_brings_it_down) {
  const Value strange[] = {Value(), Value(true), Value(0), Value(-1), Value(1), Value(2), Value(int64_t{1} << 31), Value(INT64_MIN), Value(INT64_MAX), Value(1e300), Value(-0.5),
                           Value("x"), Value::array(), Value::object(), ints({0, 0, 0}), ints({INT64_MIN, INT64_MAX}), Value(Value::Array(1000, Value(1))), Value(Value::Array{Value(Value::object())})};
  Random random(5);
  for (const char* name : {"vanilla-interleaved", "vanilla-half-split", "gated", "rnn", "none", "own-tables", "gguf-f16"}) {
    Changeable d = change(name);
    const Value config = d.config;
    const std::vector<TensorView> tensors = d.tensors;
    const auto any = [&] { return strange[static_cast<size_t>(random.below(static_cast<int32_t>(std::size(strange))))]; };
    const auto try_it = [&] {
      const Status status = d.load();
      EXPECT_TRUE(status.ok() || !status.message().empty());
      d.config = config;
      d.tensors = tensors;
    };
    for (size_t key = 0; key < config.as_object().size(); ++key)
      for (const Value& value : strange) {
        d.config.as_object()[key].second = value;
        try_it();
      }
    for (int trial = 0; trial < 400; ++trial) {
      for (int32_t n = 1 + random.below(3); n > 0; --n) {
        Value* at = &d.config;
        if (Value* nested = at->find("dflash_config"); nested != nullptr && nested->is_object() && random.below(2) == 0) at = nested;
        if (at->as_object().empty()) continue;
        at->as_object()[static_cast<size_t>(random.below(static_cast<int32_t>(at->as_object().size())))].second = any();
      }
      TensorView& t = d.tensors[static_cast<size_t>(random.below(static_cast<int32_t>(d.tensors.size())))];
      switch (random.below(4)) {
        case 0: std::swap(t.shape.front(), t.shape.back()); break;
        case 1: t.shape.insert(t.shape.begin(), 1); break;
        case 2: t.name = d.tensors[0].name + "x"; break;
        default: break;
      }
      if (tensor_bytes(t.type, t.shape) != t.data.size()) t.shape = tensors[static_cast<size_t>(&t - d.tensors.data())].shape;
      try_it();
    }
  }
}

}  // namespace
}  // namespace espalier::test
