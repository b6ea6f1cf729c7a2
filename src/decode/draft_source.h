// Something that proposes how a text goes on. Sources are leaves: they know nothing of each other, of the heap or of the model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace espalier {

struct Proposal {
  int32_t token;
  float probability;  // calibrated: that the target chooses this token, given that its text goes through the parent
};

// A place in the tree being grown.
struct DraftPlace {
  int32_t node;                   // index in the order of popping, kRoot for the root
  int32_t parent;                 // of that node; kRoot - 1 for the root itself
  std::span<const int32_t> path;  // tokens below the root down to the node; empty for the root
  float reach = 1;                // of that node: what a child of it may be worth at the most
};

// One for each sequence. One thread at a time.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  virtual std::string_view name() const = 0;
  // A new cycle. `text`: all tokens of the sequence, the root last; it grows by appending between cycles, and is borrowed until
  // the cycle ends.
  virtual void begin(std::span<const int32_t> text) = 0;
  // Children of a place, appended best first, each token once, at most `limit`. Asked at most once for each node of a cycle,
  // parents first. Nothing to say: nothing appended.
  virtual void propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) = 0;
  // What became of a proposal of this source whose parent was reached: the online half of calibration.
  virtual void learn(const DraftPlace& place, int32_t token, float probability, bool accepted) = 0;
};

}  // namespace espalier
