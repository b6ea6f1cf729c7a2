// Grows the trees of one call: one best-first heap over any number of sequences.
//
// A candidate's key is its reach: the product of the calibrated probabilities along its path. Two sources that name the same
// child make one node with p = 1 - (1 - p1)(1 - p2). Candidates are taken in the order of (reach descending, sequence, parent,
// probability descending, token), so every prefix of the order is a set of connected trees, the best of its size.
//
// Lazy      a place is expanded when the next candidate is asked for after it was taken: what is never looked at costs nothing.
// Numerics  fp32 products in a fixed order: the same trees on every machine.
// Threads   one at a time; the sources are called from within.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "decode/draft_source.h"
#include "decode/draft_tree.h"

namespace espalier {

inline constexpr int32_t kDraftRowsMax = 64;                  // rows of one call that hold trees, a root included
inline constexpr int32_t kDraftNodesMax = kDraftRowsMax - 1;  // drafted tokens of one call
inline constexpr int32_t kDraftDepthMax = kDraftNodesMax;
inline constexpr int32_t kDraftChildrenMax = 32;              // proposals of one source at one place

// Any numbers: they are clamped to 0 (children: 1) ... the constants above.
struct GrowLimits {
  int64_t nodes = kDraftNodesMax;
  int64_t depth = kDraftDepthMax;
  int64_t children = kDraftChildrenMax;  // 1: chains
};

// One sequence that drafts. The sources are borrowed, and their begin() has been called for this cycle.
struct DraftSequence {
  std::vector<DraftSource*> sources;  // bit i of DraftNode::sources; at most 32
  int64_t depth_max = kDraftDepthMax;  // of this sequence; clamped as above
};

class TreeGrower {
 public:
  TreeGrower(std::vector<DraftSequence> sequences, GrowLimits limits);
  ~TreeGrower();
  TreeGrower(TreeGrower&&) noexcept;
  TreeGrower& operator=(TreeGrower&&) noexcept;

  // Reach of the best candidate that is not taken yet; 0 when there is none, or no room.
  float next();
  // Takes that candidate. False when there is none.
  bool take();
  // Takes until there are that many nodes, or nothing more to take. Returns how many there are.
  size_t grow(size_t nodes);
  // Keeps the first `nodes` that were taken. Nothing can be taken afterwards.
  void cut(size_t nodes);

  // Reach of each node taken, in order: never rises.
  std::span<const float> reach() const;
  size_t sequences() const;
  const DraftTree& tree(size_t sequence) const;  // its nodes in the order in which they were taken

  // Tells the sources what became of every proposal whose parent the target's text went through. `kept`: of tree(sequence).
  void learn(size_t sequence, const Acceptance& kept);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
