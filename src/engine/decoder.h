// Decodes any number of open sequences. One step is one call of the model: rows of every sequence that has something to run
// (a chunk of prompt, or its newest token with the drafted tree below it), a commit for each, and the tokens that the target
// chose for each whose text has been read to the end: one, and one more for each drafted token that it agrees with.
//
// A sequence's tokens depend on its own text, rules and seed only, never on what shares its calls, nor on what was drafted.
// Threads   one at a time; the model's calls included.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/top_entry.h"
#include "decode/sampler.h"
#include "engine/drafting.h"
#include "units/unit.h"

namespace espalier {

struct TokenLogprobs {
  float logprob = 0;          // of the token, from the raw logits: logit - log-sum-exp
  std::vector<TopEntry> top;  // alternatives, best first; `logit` holds the log-probability
};

struct DrawnToken {
  SequenceId sequence = 0;
  int32_t id = 0;
  int32_t position = 0;
  TokenLogprobs logprobs;  // where the sequence asked for them
};

// What ends a text from outside of the decoder.
struct TextLimits {
  int32_t tokens_max = INT32_MAX;  // tokens that may still be drawn: no rows are spent on more
  // Called with each token as it is drawn, outside of the model's turn. True: the text ends with this token; nothing behind
  // it is drawn or kept, and the state is what plain decoding leaves: it holds everything but this token.
  std::function<bool(const DrawnToken&)> complete;
};

struct StepReport {
  CallStats call;
  int32_t prompt_rows = 0;   // rows of the call that were not a sequence's newest token
  int32_t drafted_rows = 0;  // rows of the call that were a drafted token
  std::string drafts_failure;  // why the call failed with its trees, and was run without them; empty: it did not
  int64_t draft_ns = 0;      // growing trees
  int64_t commit_ns = 0;     // commits, and what the drafter reads of them
  int64_t step_ns = 0;       // all of it
  std::vector<DrawnToken> drawn;
};

class Decoder {
 public:
  // `turns`: held while the model runs, where others use it too. `drafting` may be null: no trees. Both are borrowed.
  explicit Decoder(Model& model, std::mutex* turns = nullptr, Drafting* drafting = nullptr);

  // `state` is borrowed until close; what it holds must be a proper prefix of `text`. Tokens behind `prompt_length` count as
  // answer for the penalties. logprobs: number of alternatives, -1 for none at all.
  Result<SequenceId> open(State* state, std::vector<int32_t> text, int32_t prompt_length, Sampling rules, int32_t logprobs, TextLimits limits = {});
  void close(SequenceId id) { sequences_.erase(id); }
  bool idle() const { return sequences_.empty(); }

  // Prompt and drawn tokens so far; the newest one is not in the state yet.
  std::span<const int32_t> text(SequenceId id) const { return sequences_.at(id).text; }
  // Rows that have to run before the next token can be drawn: 1 while decoding.
  int32_t waiting_rows(SequenceId id) const;

  // Requires: !idle(). At most prompt_rows_max rows of unread prompt, shared in the order of opening; for every other sequence
  // that is not complete one row and those of its tree. A failed call leaves all states as they were. `stop_at`: reads no
  // further than this many tokens of the text (0: no limit), so that a caller can fork the state there. `only`: that sequence alone (-1: all).
  Result<StepReport> step(int32_t prompt_rows_max, int32_t stop_at = 0, SequenceId only = -1);

 private:
  struct Sequence {
    State* state;
    std::vector<int32_t> text;
    Sampler sampler;
    History history;
    int32_t logprobs;
    TextLimits limits;
    int32_t drawn = 0;
    bool complete = false;
    DraftTree tree;                        // of the current call
    int32_t first_row = 0, row_count = 0;  // of its text in the current call; the tree's rows follow
    bool draws = false;
  };
  // Which entry of each output list a row got.
  struct Entries {
    size_t argmax = 0, logits = 0, top = 0, lse = 0, taps = 0;
  };
  struct Scope {
    int32_t prompt_rows_max, stop_at;
    SequenceId only;
  };
  void grow_trees(const Scope& scope);
  void gather(const Scope& scope, StepReport& report);
  void add_tree_rows(Sequence& s, int32_t index, StepReport& report);
  void index_outputs();
  Result<CallStats> run_rows();
  uint32_t wants(const Sequence& s) const;
  Status settle(SequenceId id, Sequence& s, StepReport& report);
  int32_t choose(SequenceId id, Sequence& s, int32_t row, StepReport& report);
  DrawnToken draw(SequenceId id, Sequence& s, int32_t row);
  void collect_features(SequenceId id, const Sequence& s, std::span<const int32_t> path);
  void hand_over_features();

  Model& model_;
  std::mutex* turns_;
  Drafting* drafting_;
  std::map<SequenceId, Sequence> sequences_;
  SequenceId next_id_ = 0;
  std::vector<Row> rows_;
  std::vector<State*> states_;
  std::vector<Entries> entries_;  // by row
  uint32_t top_k_ = 0;
  Outputs out_;
  std::vector<KeptRows> kept_;
  std::vector<int32_t> kept_tokens_;
  std::vector<float> features_;
};

}  // namespace espalier
