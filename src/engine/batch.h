// Several answers in one decoder: their rows share the model's calls, and what is drafted for them one heap and one budget.
//
// Each answer equals the one that its request gives alone. Threads: one at a time; a request is cancelled from any.
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "engine/generation.h"

namespace espalier {

class Batch {
 public:
  using Done = std::function<void(size_t key, Result<Answer> answer)>;

  // All that is added drafts in this mode.
  Batch(Engine::Impl& engine, const SpeculationMode& mode);

  size_t size() const { return jobs_.size(); }
  // From the next step on. `request`, `cancelled` and `callbacks` are borrowed until `key` is done. Fails: no memory for states.
  Status add(size_t key, const PreparedRequest& request, const std::atomic<bool>& cancelled, const Callbacks& callbacks);
  // One call of the model for all, and `done` for each that is complete (then, or before: cancelled ones). A call that fails is
  // repeated for each alone, so that only the answer at fault ends with its status.
  void step(const Done& done);

 private:
  struct Job {
    size_t key = 0;
    std::unique_ptr<State> state, drafter;
    GenerationState held{nullptr};
    std::unique_ptr<Generation> generation;
  };
  void finish_complete(const Done& done);
  void step_each(const Done& done);

  Engine::Impl& engine_;
  SpeculationMode mode_;
  Speculation speculation_;
  bool drafts_;
  Decoder decoder_;
  std::list<Job> jobs_;  // die before the decoder
};

// All of `requests`, at most `sequences` at a time, in their order; those of one mode together.
void run_together(Engine::Impl& engine, std::span<Request::Impl* const> requests, int32_t sequences, const Batch::Done& done);

}  // namespace espalier
