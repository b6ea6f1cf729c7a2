// What the decoder families share: a stack of pre-norm layers, each a mixer (attention or short convolution) and a gated
// feed-forward, with the residual stream between them. A family reads its config into a shape and names its tensors.
#pragma once

#include <string>
#include <vector>

#include "base/value.h"
#include "models/model.h"
#include "weights/config_reader.h"

namespace espalier::models {

// Tensor names of one file format; "{}" stands for the layer. A null name: the family has no such weight.
struct DecoderNames {
  const char* embed;
  const char* final_norm;
  const char* head;  // used when not tied
  const char* mixer_norm;
  const char* ffn_norm;
  const char *gate, *up, *down;
  const char *q, *k, *v, *o;
  const char *q_norm, *k_norm;
  const char *conv_in, *conv_taps, *conv_out;
};

struct DecoderShape {
  const char* family;
  int32_t hidden = 0, ffn = 0, vocabulary = 0;
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float eps = 0;
  RopeSpec rope;
  std::vector<bool> attention;  // by layer; false: short convolution
  int32_t conv_kernel = 0;
  bool qk_norm = false;
  bool tied = false;
  bool q_bias = false, k_bias = false, v_bias = false, o_bias = false;
  bool ffn_bias = false;
  bool conv_bias = false;        // on in_proj, conv and out_proj
  bool rows_interleaved = false; // q and k rows of the file are those of interleaved rotation: undo it
};

// "{}" replaced by the layer; "x.weight" as "x.bias".
std::string layer_name(const char* pattern, int32_t layer);
std::string bias_name(std::string weight);

// The program of a shape, with the checkpoint's tensor for each weight. `canonical` names the weights of the program,
// `file` those of the checkpoint.
Result<ModelPlan> build_decoder(const DecoderShape& shape, const DecoderNames& canonical, const DecoderNames& file);

// Rows of the table that a shape's vocabulary comes from: the tensor, not the config, is right (spec 1.3).
Result<int32_t> table_rows(const Checkpoint& checkpoint, const DecoderNames& file, int32_t hidden);

bool is_gguf(const Checkpoint& checkpoint);
// Where messages about the config should point to.
std::string config_name(const Checkpoint& checkpoint);

// RoPE of an HF config: rope_parameters, or rope_theta with rope_scaling; types default and llama3.
Result<RopeSpec> read_hf_rope(ConfigReader& config, int32_t head_dim, std::initializer_list<std::string_view> theta_keys);
// RoPE of a GGUF file: freq_base, dimension_count, and the divisors of rope_freqs.weight.
Result<RopeSpec> read_gguf_rope(ConfigReader& config, const Checkpoint& checkpoint, int32_t head_dim);
// Refuses activations other than SiLU.
Status read_activation(ConfigReader& config, std::string_view key);
// Ends the reading of a config: HF keys that are left are listed in a notice, GGUF keys that are left are refused.
Status finish_config(ConfigReader& config, const Checkpoint& checkpoint, std::vector<std::string>& notices);

// Keys of HF configs that never change the maths of a decoder run in inference.
void ignore_common_keys(ConfigReader& config);
// Keys that would change the maths and are not implemented, in any family.
Status refuse_common_keys(ConfigReader& config);

}  // namespace espalier::models
