// `espalier bench --sequences N`: what sharing the model's calls is worth.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/generation.h"

namespace espalier {

struct SequencesBenchOptions {
  std::vector<int32_t> sequences = {1, 2, 4, 8};
  std::string mode = "off";  // of drafting
  int32_t prompt = 32;       // tokens of each made-up prompt; of no use where prompts are given
  int32_t tokens = 64;       // of each answer; given prompts may end before
  int32_t rounds = 3;
};

using SequencesProgress = std::function<bool(const std::string& what)>;

// `prompts` may be empty: made-up ones then, and answers that end at `tokens` alone; more sequences than prompts take them again.
// Each text is compared with that of the same request alone, in every round. {"mode", "rows": [{"sequences", "tokens", "ms",
// "tokens_per_second", "decode_tokens_per_second", "ratio_to_first"}]}: all tokens by the whole time, prompts included; then those
// of calls without rows of a prompt, by the time of these. Medians over the rounds; the ratio is that of decoding.
Result<Value> bench_sequences(Engine::Impl& engine, const std::vector<ReadPrompt>& prompts, const SequencesBenchOptions& options,
                              const SequencesProgress& progress = {});
std::string sequences_text(const Value& result);

}  // namespace espalier
