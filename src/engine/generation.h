// One answer from tokens to tokens: reads the prompt, draws until something ends it, feeds an AnswerBuilder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "decode/sampling.h"
#include "engine/answer_builder.h"
#include "engine/engine_impl.h"
#include "engine/prompt.h"
#include "engine/speculation.h"

namespace espalier {

// A request that has been checked, whoever holds the state it runs on.
struct PreparedRequest {
  std::vector<int32_t> prompt_ids;
  Sampling rules;
  AnswerRules answer;
  SpeculationMode speculate;
  int64_t received_ns = 0;
  std::vector<std::string> warnings;
};

// Checks options against the model and the room that the prompt leaves. Fails with the field.
Result<PreparedRequest> prepare_request(const Engine::Impl& engine, ReadPrompt prompt, const GenerateOptions& options, int64_t received_ns);

struct GenerationState {
  State* state;                // holds a proper prefix of the prompt
  State* drafter = nullptr;    // of the drafter: the same tokens; null: it does not draft
  int32_t snapshot_at = 0;     // tokens of the prompt after which snapshots are taken; 0: none
  std::unique_ptr<State> snapshot, drafter_snapshot;
  bool goes_on = false;        // the states are used again: the drafter's holds at the end what the other holds
};
// An empty state of the engine's drafter; null where there is none, or the mode is off.
Result<std::unique_ptr<State>> make_drafter_state(Engine::Impl& engine, const SpeculationMode& mode);

// One answer on its way through a decoder. The decoder draws; the builder says what ends the text, token by token.
class Generation {
 public:
  // Opens a sequence. Everything given must outlive this. `speculation`: the decoder's; null: this one does not draft.
  static Result<std::unique_ptr<Generation>> open(Engine::Impl& engine, const PreparedRequest& request, GenerationState& held,
                                                  const std::atomic<bool>& cancelled, const Callbacks& callbacks, Decoder& decoder,
                                                  Speculation* speculation);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  SequenceId id() const { return id_; }
  // Before each step; false: the answer is complete (a cancelled one, too).
  bool before_step();
  int32_t stop_at() const;  // for Decoder::step
  void after_step();
  // Requires: before_step() was false. Once.
  Answer finish();

 private:
  Generation(Engine::Impl& engine, const PreparedRequest& request, GenerationState& held, const std::atomic<bool>& cancelled,
             const Callbacks& callbacks, AnswerBuilder builder, Decoder& decoder, Speculation* speculation);
  bool take(const DrawnToken& token);
  void tell_prefill(int64_t read);

  Engine::Impl& engine_;
  const PreparedRequest& request_;
  GenerationState& held_;
  const std::atomic<bool>& cancelled_;
  const Callbacks& callbacks_;
  AnswerBuilder builder_;
  Decoder& decoder_;
  Speculation* speculation_;
  SequenceId id_ = -1;  // closed by the destructor
  int64_t start_ns_ = 0, first_ns_ = 0, drawn_ = 0, reused_ = 0;
  int64_t told_ = -1;  // rows of the prompt that on_prefill knows of
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
