// Drafts with a DSpark block: the base logits of each depth, and what a parent's own token adds to them (decode/markov_head.h).
//
// Children are scored over the union of the depth's 64 best base logits and the parent token's 32 best biases. Where those are not
// known yet and dear to find, a place of small reach does without them.
// Score        s = base + bias; sampling at temperature T: s = base + bias + T g(position, id), the noise that the target itself
//              draws with, so that a draft guesses the target's own draw. What top-k, top-p or min-p would drop is not proposed.
// Probability  exp(s) / (sum over the union of exp(s) + sum over the other tokens of exp(base)), then Platt of the depth. The tail
//              at its base logits is as cheap as none and predicts better than the softmax of all base + bias (log loss of an
//              earlier demo drafter's held-out turns 0.257 against 0.264, over the union alone 0.273, each after its own Platt).
// Numerics     fp32, own exp and log, sums in a fixed order: the same on every machine.
// Cost         one scan of the vocabulary for each depth that is reached; 8 to 20 us an expansion (4,096 x 64 to 128,000 x 256, one
//              core) once the parent token's best biases are known; sampling adds 5.
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
  std::span<const float> lse;     // (depths): log-sum-exp of each row; empty: computed where a depth is reached
  std::span<const float> hidden;  // (depths, hidden); may be empty where the head doesn't read it (vanilla, none)
};

struct DsparkOptions {
  bool depth_marginal = false;  // children of a depth as the greedy chain has them, whatever their parent: for comparison
};

class DsparkSource final : public DraftSource {
 public:
  static constexpr size_t kBaseTop = 64;

  // The start: fitted on records of the demo model's drafter. Slots are depths.
  static Calibration calibration(bool greedy);

  // Borrows head and calibration, which sequences may share; those that sample and those that don't have calibrations of their
  // own, since what is left to chance differs.
  DsparkSource(MarkovHead& head, Calibration& calibration, const Sampling& rules, DsparkOptions options = {});

  std::string_view name() const override { return "dspark"; }
  // A new cycle without a block: nothing is proposed until one is set.
  void begin(std::span<const int32_t> text) override;
  // After begin(), before the first place. Requires: sizes that fit the head. A row with a logit that is not finite ends the
  // block above it.
  void set_block(const DraftBlock& block);
  void propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) override;
  void learn(const DraftPlace& place, int32_t token, float probability, bool accepted) override;

 private:
  struct Depth {
    bool known = false;
    std::vector<TopEntry> top;    // of the base logits, best first
    std::vector<int32_t> sorted;  // its ids, ascending
    float shift = 0;              // the largest base logit
    float top_mass = 0;           // sum over top of exp(base - shift)
    float mass = 0;               // sum over the vocabulary of exp(base - shift); 0: the row is unusable
  };
  struct Scored {
    int32_t id;
    float logit;  // base + bias
    float score;
  };
  struct Offer {
    int32_t token;
    float logit;
  };
  const Depth& depth(size_t d);
  std::span<const float> hidden_row(size_t d) const;
  bool score(size_t d, int32_t token, const MarkovHead::Lead& lead, float reach);
  void drop_what_sampling_drops();
  void prepare_likely();
  const MarkovHead::Lead* lead_of(const DraftPlace& place, size_t d, int32_t token);
  const MarkovHead::Lead* lead_of_chain(size_t d);

  MarkovHead& head_;
  Calibration& calibration_;
  Sampling rules_;
  DsparkOptions options_;
  DraftBlock block_;
  std::vector<Depth> depths_;
  int32_t root_token_ = 0, next_position_ = 0;
  std::vector<MarkovHead::Lead> leads_;  // by node + 1
  std::vector<int32_t> chain_;           // depth-marginal: token of the greedy chain at each depth, the root's first
  std::vector<MarkovHead::Lead> chain_leads_;
  std::vector<int32_t> ids_;
  std::vector<float> bias_, weights_;
  std::vector<Scored> scored_;  // of the last score(), the best first where asked
  float rest_ = 0;              // what the tokens that were not scored weigh, against exp(best score) = 1
  std::vector<std::vector<Offer>> offers_;  // by node + 1
};

}  // namespace espalier
