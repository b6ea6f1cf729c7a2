// The Markov step of a DSpark drafter: what a token of the tree makes of the base logits of the next depth.
//
// A node with token x at depth d (the root: the anchor at depth 0) has children at depth d + 1, whose base logits and hidden
// row g are those of slot d of the block:
//     logits of the children = base[d] + bias,    bias[v] = w2[v] . direction
//     vanilla  direction = e, the row of x in w1
//     gated    direction = sigmoid(G [g; e] + b) * e
//     rnn      J [s; e; g] + b in three parts of `rank`: gate, candidate, output; s is the memory of x's parent, 0 for the root;
//              memory of x = sigmoid(gate) * s + (1 - sigmoid(gate)) * tanh(candidate);  direction = tanh(output)
//     confidence of slot d after x = sigmoid(c [g; e] + b), or without e where the file says so
//
// Numerics  fp32, the same bits on every machine: dot products are those of kernels/table_dot, sigmoid and tanh those
//           of kernels/math/canonical.h. Products with a matrix are taken row by row, so no bit depends on which ids are asked for.
// Memory    the tables stay in the file's type where they lie: 2 bytes a number in bf16, 131 MB at 128,000 x 256. 256 bytes for
//           each token whose `top` was asked for.
// Cost      direction of a vanilla head and 96 biases: 1.4 us at 4,096 x 64, 24 us at 128,000 x 256 (cache misses). `top` of a token asked
//           for the first time reads all of w2, in the larger case 65 MB in 12 to 17 ms on one thread, 3.5 to 6 ms a token where
//           `prepare` has 16 of them; a unit's int8 head (`use`) takes 4 ms, and 19 ms for 16 of them.
// Threads   one at a time; the const functions any number.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/top_entry.h"
#include "program/draft_head.h"

namespace espalier {

class MarkovHead {
 public:
  static constexpr size_t kTop = 32;

  // What a node says to its children.
  struct Lead {
    std::vector<float> direction;  // (rank); empty where the head is of kind none
    std::vector<float> memory;     // rnn: (rank); else empty
  };

  // Borrows the head, which must outlive this.
  explicit MarkovHead(const DraftHead& head);
  const DraftHead& head() const { return head_; }

  // The lead of a node with this token. `hidden`: the block's hidden row of the slot that predicts its children (rank vanilla
  // and none don't read it). `parent`: lead of its parent, null for the root. `out` may be reused, and may not be *parent.
  // Requires: 0 <= token < vocabulary.
  void lead(int32_t token, std::span<const float> hidden, const Lead* parent, Lead& out) const;

  // out[i] = bias of ids[i]. A head of kind none: zeros.
  void bias(const Lead& lead, std::span<const int32_t> ids, std::span<float> out) const;
  // out[v] for the whole vocabulary.
  void bias(const Lead& lead, std::span<float> out) const;

  // Probability that the slot is right, given that all before it were; 1 where the drafter has no such head.
  float confidence(int32_t token, std::span<const float> hidden) const;

  // The kTop ids (fewer in a smaller vocabulary) with the largest bias after a token, best first, equal ones by id. Gated and
  // rnn: of the bias for a hidden row of zeros and no memory, which ranks candidates but is not their bias. Kind none: empty.
  // Valid as long as this object; computed once a token.
  std::span<const TopEntry> top(int32_t token);
  // Whether top() of this token costs a scan; a place that is hardly ever reached is not worth one in a large table.
  bool is_dear(int32_t token) const { return finder_ && !top_.contains(token); }
  // The same for many tokens in one pass over w2; those that are known cost nothing.
  void prepare(std::span<const int32_t> tokens);

  // Another way than a scan in fp32 to find which ids are best: for each lead a list, in any order; an empty list is made up for
  // by the scan. Their biases and their order are still the exact ones of `bias`; a list that misses an id only loses a
  // candidate.
  using Finder = std::function<std::vector<std::vector<int32_t>>(std::span<const Lead> leads)>;
  void use(Finder finder) { finder_ = std::move(finder); }

 private:
  using Top = std::vector<TopEntry>;
  std::vector<Top> scan(std::span<const Lead> leads) const;
  std::vector<Top> find(std::span<const Lead> leads) const;

  const DraftHead& head_;
  Finder finder_;
  std::unordered_map<int32_t, Top> top_;  // nodes do not move
};

}  // namespace espalier
