// Inside src/models: the families' entries, and the readers that several of them share.
#pragma once

#include <string_view>

#include "models/decoder.h"

namespace espalier::models {

// In the family's name of a converted program whose embedding or head was scaled: a drafter made for the source cannot share them.
inline constexpr const char* kScaledEnds = " (embedding or head scaled)";

Result<ModelPlan> plan_lfm2(const Checkpoint& checkpoint);
Result<ModelPlan> plan_llama(const Checkpoint& checkpoint);
Result<ModelPlan> plan_qwen3(const Checkpoint& checkpoint);

// Bounds that keep every product of two of them inside 64 bits and every width inside 32.
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxConvKernel = 16;

// Names that Llama and its kin share.
extern const DecoderNames kStandardHf;
extern const DecoderNames kStandardGguf;

Result<int32_t> required_i32(ConfigReader& c, std::string_view key, int64_t min, int64_t max);
Result<float> required_f32(ConfigReader& c, std::string_view key);

// Head counts and size; a missing head size is hidden / heads where that is whole.
Status read_heads(ConfigReader& c, DecoderShape& s, std::string_view heads, std::string_view kv_heads, std::string_view head_dim);
// Sizes, heads, eps, activation, rope and tying under the names that transformers' decoders share.
Status read_standard_hf(ConfigReader& c, DecoderShape& s);

// GGUF: block_count, embedding_length, feed_forward_length, attention.head_count, eps.
Status read_gguf_sizes(ConfigReader& c, DecoderShape& s);
// GGUF: key_length and value_length, or hidden / heads.
Status finish_gguf_heads(ConfigReader& c, DecoderShape& s);
// Both, with attention.head_count_kv as one number.
Status read_standard_gguf(ConfigReader& c, DecoderShape& s);
void find_gguf_biases(const Checkpoint& checkpoint, DecoderShape& s, const DecoderNames& file);
// The names that the checkpoint's tensors have: a packed folder keeps the program's, whatever it was made from.
const DecoderNames& file_names(const Checkpoint& checkpoint, const DecoderNames& canonical, const DecoderNames& gguf);

// Lists or refuses what was not read, builds the program, sets context and notices.
Result<ModelPlan> finish_plan(ConfigReader& c, const Checkpoint& checkpoint, const DecoderShape& s, const DecoderNames& canonical,
                              const DecoderNames& file, int32_t context);
// As above for GGUF: rope, tying (no output.weight), vocabulary and context as well.
Result<ModelPlan> finish_gguf_plan(ConfigReader& c, const Checkpoint& checkpoint, DecoderShape& s, const DecoderNames& canonical,
                                   const DecoderNames& file);

}  // namespace espalier::models
