// One answer from tokens to tokens: reads the prompt, draws until something ends it, feeds an AnswerBuilder.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "decode/sampling.h"
#include "engine/answer_builder.h"
#include "engine/engine_impl.h"
#include "engine/prompt.h"

namespace espalier {

// A request that has been checked, whoever holds the state it runs on.
struct PreparedRequest {
  std::vector<int32_t> prompt_ids;
  Sampling rules;
  AnswerRules answer;
  int64_t received_ns = 0;
  std::vector<std::string> warnings;
};

// Checks options against the model and the room that the prompt leaves. Fails with the field.
Result<PreparedRequest> prepare_request(const Engine::Impl& engine, ReadPrompt prompt, const GenerateOptions& options, int64_t received_ns);

struct GenerationState {
  State* state;               // holds a proper prefix of the prompt
  int32_t snapshot_at = 0;    // tokens of the prompt after which `snapshot` is taken; 0: none
  std::unique_ptr<State> snapshot;
};

// Blocks. `cancelled` is read between calls. A failed call of the model is the status.
Result<Answer> generate(Engine::Impl& engine, const PreparedRequest& request, GenerationState& held, const std::atomic<bool>& cancelled,
                        const Callbacks& callbacks);

struct Request::Impl {
  std::shared_ptr<Engine::Impl> engine;
  PreparedRequest prepared;
  std::atomic<bool> cancelled{false};
  bool used = false;
};
static_assert(std::atomic<bool>::is_always_lock_free);  // cancel runs in signal handlers

}  // namespace espalier
