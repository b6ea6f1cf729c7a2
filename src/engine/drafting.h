// Who grows the trees that a decoder verifies. The decoder knows rows and trees; sources, heap, budget and drafter are behind
// this door.
//
// Nothing that is behind it can change a text: a tree that is wrong costs time, and one that is not well formed is dropped.
// Threads   as the decoder: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "decode/draft_tree.h"

namespace espalier {

using SequenceId = int32_t;

// A sequence that is about to run its newest token.
struct DraftAsk {
  SequenceId sequence;
  std::span<const int32_t> text;  // all tokens, the root last; borrowed until the tree is settled
  int32_t depth_max;              // tokens behind the root that the text may still keep rows for
};

// Rows that a state has just kept, with what the taps said of them.
struct KeptRows {
  SequenceId sequence;
  int32_t position;                // of the first; they follow each other
  std::span<const int32_t> tokens;
  const float* features;           // (tokens, taps * width), the taps of a row side by side; null without taps
};

struct StepReport;  // engine/decoder.h

class Drafting {
 public:
  virtual ~Drafting() = default;
  // Names of the tapped values of the target ("layer.2"), in the order in which features want them. Constant.
  virtual std::span<const std::string> taps() const = 0;
  // Whether this sequence drafts at all, and whether the taps of its rows are read.
  virtual bool follows(SequenceId id) const = 0;
  virtual bool reads_taps(SequenceId id) const = 0;
  // One tree for each that asks; `trees` come empty, and an empty one is a plain step. other_rows: rows of the coming call that
  // belong to nobody who asks (prompts).
  virtual void draft(std::span<const DraftAsk> asked, int32_t other_rows, std::span<DraftTree> trees) = 0;
  // What the target kept of a tree of the last draft(), an empty one too.
  virtual void settle(SequenceId id, const DraftTree& tree, const Acceptance& kept) = 0;
  // All rows that a step has kept of sequences whose taps are read, prompt rows too; once a step, after settle().
  virtual void keep(std::span<const KeptRows> rows) = 0;
  // The step failed: nothing was kept, and the trees of the last draft() will not be settled.
  virtual void abandon() = 0;
  // What the step took; last.
  virtual void observe(const StepReport& report) = 0;
};

}  // namespace espalier
