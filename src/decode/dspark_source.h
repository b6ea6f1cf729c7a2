// Drafts with a DSpark block: the base logits of each depth, and what a parent's own token adds to them (decode/markov_head.h).
//
// Children are scored over the union of the depth's 64 best base logits and the parent token's 32 best biases.
// Probability  of a score s = base + bias among all tokens, with the tail that was not scored taken at its base logits:
//              exp(s) / (sum over the union of exp(s) + sum over the others of exp(base)), then Platt of the depth.
// Sampling     s = (base + bias) / T + g(position, id) with the noise that the target itself will draw with, so that a draft
//              guesses the target's own draw; Platt sets of their own, since what is left to chance is another thing.
// Numerics     fp32, own exp and log, sums in a fixed order: the same on every machine.
// Cost         one scan of the vocabulary for each depth that is reached; microseconds an expansion.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/top_entry.h"
#include "decode/calibration.h"
#include "decode/draft_source.h"
#include "decode/markov_head.h"
#include "decode/sampling.h"

namespace espalier {

// What the drafter's block call gave, row d - 1 for depth d. Borrowed until the cycle ends.
struct DraftBlock {
  int32_t depths = 0;
  std::span<const float> logits;  // (depths, vocabulary)
  std::span<const float> hidden;  // (depths, hidden); may be empty where the head doesn't read it (vanilla, none)
};

struct DsparkOptions {
  bool depth_marginal = false;  // children of a depth as the greedy chain has them, whatever their parent: for comparison
};

class DsparkSource final : public DraftSource {
 public:
  static constexpr size_t kBaseTop = 64;

  // A calibration with nothing learnt: slots are depths.
  static Calibration calibration(bool greedy, int32_t block_size);

  // Borrows head and calibration, which sequences may share.
  DsparkSource(MarkovHead& head, Calibration& calibration, const Sampling& rules, DsparkOptions options = {});

  std::string_view name() const override { return "dspark"; }
  // A new cycle without a block: nothing is proposed until one is set.
  void begin(std::span<const int32_t> text) override;
  // After begin(), before the first place. Requires: sizes that fit the head.
  void set_block(const DraftBlock& block);
  void propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) override;
  void learn(const DraftPlace& place, int32_t token, float probability, bool accepted) override;

 private:
  struct Depth {
    bool ready = false;
    std::vector<TopEntry> top;  // base logits, best first
    float shift = 0;            // the largest base logit
    float mass = 0;             // sum over the vocabulary of exp(base - shift), at the temperature
  };
  struct Offer {
    int32_t node, token, depth;
    float logit;
  };
  struct Scored {
    int32_t id;
    float score;
  };
  Depth& depth(size_t d);
  std::span<const float> hidden_row(size_t d) const;
  void score(size_t d, int32_t token, const MarkovHead::Lead& lead);
  void follow_chain(size_t depths);

  MarkovHead& head_;
  Calibration& calibration_;
  Sampling rules_;
  DsparkOptions options_;
  DraftBlock block_;
  std::vector<Depth> depths_;
  int32_t root_token_ = 0, root_position_ = 0;
  std::vector<MarkovHead::Lead> leads_;  // by node + 1
  std::vector<MarkovHead::Lead> chain_leads_;  // depth_marginal, by depth
  std::vector<int32_t> chain_;
  std::vector<int32_t> ids_;
  std::vector<float> base_, bias_;
  std::vector<Scored> scored_;
  float mass_ = 0;
  std::vector<Offer> offers_;
};

}  // namespace espalier
