// How the next token is chosen: what a request may say, and what holds after the model's own defaults are merged in.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/value.h"
#include "espalier/status.h"

namespace espalier {

// What a request says; absent fields fall back to the model's generation_config, then to the engine.
struct SamplingRequest {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;
};

// What holds. The order of application is the order of the fields, seed last.
struct Sampling {
  std::vector<std::pair<int32_t, float>> logit_bias;  // ids ascending, each once
  float repetition_penalty = 1;  // over prompt and answer: a positive logit is divided by it, another multiplied
  float presence_penalty = 0;    // over the answer
  float frequency_penalty = 0;   // over the answer, times the count
  float temperature = 1;         // 0: the largest logit, smallest id; what follows is not read
  int32_t top_k = 0;             // 0: all
  float top_p = 1;               // keeps the shortest prefix whose probability reaches it
  float min_p = 0;               // keeps what has at least this share of the best probability
  uint64_t seed = 0;
  uint32_t choice = 0;

  bool changes_logits() const {
    return !logit_bias.empty() || repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  bool greedy() const { return temperature == 0; }
};

// Request over generation_config over engine (temperature 1, nothing else). A config's penalties hold only when sampling.
// `"do_sample": false` in the config means temperature 0, unless the request asks for a way of sampling (temperature,
// top_k, top_p or min_p). Fails with the field: a value outside its range, an id outside the vocabulary.
// A seed that is absent stays 0: the caller draws one.
Result<Sampling> resolve_sampling(const SamplingRequest& request, const Value& generation_config, int32_t vocabulary);

}  // namespace espalier
