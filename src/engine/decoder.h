// Decodes any number of open sequences. One step is one call of the model: rows of every sequence that has something to run
// (a chunk of prompt, or its newest token), a commit for each, and a drawn token for each whose text has been read to the end.
//
// A sequence's tokens depend on its own text, rules and seed only, never on what shares its calls.
// Threads   one at a time; the model's calls included.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/top_entry.h"
#include "decode/sampler.h"
#include "units/unit.h"

namespace espalier {

using SequenceId = int32_t;

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

struct StepReport {
  CallStats call;
  int32_t prompt_rows = 0;  // rows of the call that were not a sequence's newest token
  std::vector<DrawnToken> drawn;
};

class Decoder {
 public:
  explicit Decoder(Model& model) : model_(model) {}

  // `state` is borrowed until close; what it holds must be a proper prefix of `text`. Tokens behind `prompt_length` count as
  // answer for the penalties. logprobs: number of alternatives, -1 for none at all.
  Result<SequenceId> open(State* state, std::vector<int32_t> text, int32_t prompt_length, Sampling rules, int32_t logprobs);
  void close(SequenceId id) { sequences_.erase(id); }
  bool idle() const { return sequences_.empty(); }

  // Prompt and drawn tokens so far; the newest one is not in the state yet.
  std::span<const int32_t> text(SequenceId id) const { return sequences_.at(id).text; }
  // Rows that have to run before the next token can be drawn: 1 while decoding.
  int32_t waiting_rows(SequenceId id) const;

  // Requires: !idle(). At most prompt_rows_max rows of unread prompt, shared in the order of opening, and one row for every
  // other sequence. A failed call leaves all states as they were. `stop_at`: reads no further than this many tokens of the
  // text (0: no limit), so that a caller can fork the state there.
  Result<StepReport> step(int32_t prompt_rows_max, int32_t stop_at = 0);

 private:
  struct Sequence {
    State* state;
    std::vector<int32_t> text;
    Sampler sampler;
    History history;
    int32_t logprobs;
    int32_t first_row = 0, row_count = 0;  // in the current call
    bool draws = false;
  };
  // Which entry of each output list a row got.
  struct Cursor {
    size_t argmax = 0, logits = 0, top = 0, lse = 0;
  };
  void gather(int32_t prompt_rows_max, int32_t stop_at, StepReport& report);
  uint32_t wants(const Sequence& s) const;
  DrawnToken draw(SequenceId id, Sequence& s, Cursor& cursor);

  Model& model_;
  std::map<SequenceId, Sequence> sequences_;
  SequenceId next_id_ = 0;
  std::vector<Row> rows_;
  std::vector<State*> states_;
  uint32_t top_k_ = 0;
  Outputs out_;
};

}  // namespace espalier
