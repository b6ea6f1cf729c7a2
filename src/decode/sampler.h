// Chooses a token from the logits of a row: a pure function of (rules, history, logits, position).
//
// Numerics  fp32 values, double sums, own exp and log: the same token on every machine. Candidates are ordered by (logit
//           descending, id ascending) and sums run in that order.
// Noise     the token is the surviving candidate with the largest logit / T + g(position, id), g = -log(-log u), u a 24-bit
//           number plus 1/2 from Philox4x32-10 (key: seed; counter: position, id, choice, 0).
// Threads   one at a time for each Sampler.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/top_entry.h"
#include "decode/sampling.h"

namespace espalier {

// Gumbel noise of one candidate, in [-2.86, 17.33].
float gumbel(uint64_t seed, int32_t position, int32_t id, uint32_t choice);

// Which tokens the text holds. A path through a drafted tree is pushed and popped.
class History {
 public:
  void add_prompt(std::span<const int32_t> ids);
  void push(int32_t id);  // a token of the answer
  void pop(int32_t id);   // takes back the last push of that id
  struct Counts {
    int32_t answer = 0;
    bool prompt = false;
  };
  const std::unordered_map<int32_t, Counts>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, Counts> counts_;
};

class Sampler {
 public:
  explicit Sampler(Sampling rules) : rules_(std::move(rules)) {}
  const Sampling& rules() const { return rules_; }

  // What a row has to bring: the argmax alone, the best `top_k` logits, or all of them.
  enum class Needs { argmax, top, logits };
  Needs needs() const;

  // The token at `position` from all logits of its row. Requires: finite logits, at least one.
  int32_t choose(std::span<const float> logits, const History& history, int32_t position);
  // The same from the best rules().top_k raw logits, best first. Requires: needs() == top.
  int32_t choose(std::span<const TopEntry> best, int32_t position);

  // The survivors of the last choose with their penalised logits, best first where top-k or top-p ordered them.
  std::span<const TopEntry> survivors() const { return candidates_; }

 private:
  void keep_best(size_t count);
  void sort_all();
  void filter();
  int32_t draw(int32_t position) const;

  Sampling rules_;
  std::vector<TopEntry> candidates_;
  std::vector<TopEntry> scratch_;
};

}  // namespace espalier
