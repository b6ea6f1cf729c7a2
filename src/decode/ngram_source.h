// Drafts by copying: the longest run of 2 to 8 tokens that ends at a place and was seen before says what follows.
//
// The index grows with the text and holds, beside it, texts given once (tool schemas, documents). Of each pair of tokens the
// kVisits newest places are looked at, the newest first. A path through the tree lengthens the match, so a copy that goes on
// grows surer with depth; nothing but the limits of the tree ends it.
//
// Probability  sigma(Platt[length](logit(p0[length]) + ln(count) / 2 + 2 ln(agreement))), p0 = 0.5, 0.7, 0.85, 0.875, 0.9 for
//              2, 3, 4, 5, 6 and more tokens; count: places that say this token; agreement: their share of all places of that
//              length.
// Memory    8 bytes a token and about 16 a distinct pair. Cost: microseconds a place.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "decode/calibration.h"
#include "decode/draft_source.h"

namespace espalier {

class NgramSource final : public DraftSource {
 public:
  static constexpr int32_t kMatchMin = 2, kMatchMax = 8, kVisits = 256;
  static constexpr size_t kSlots = 5;  // of the calibration: match lengths 2, 3, 4, 5, >= 6

  // A calibration with nothing learnt.
  static Calibration calibration();

  // Borrows the calibration, which sequences may share.
  explicit NgramSource(Calibration& calibration) : calibration_(calibration) {}

  // Another text to copy from. Before the first begin().
  void add_text(std::span<const int32_t> tokens);

  std::string_view name() const override { return "ngram"; }
  void begin(std::span<const int32_t> text) override;
  void propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) override;
  void learn(const DraftPlace& place, int32_t token, float probability, bool accepted) override;

  // What the index says after a run of tokens that ends at a place: the longest match within kMatchMax and its continuations,
  // most frequent first, then the newest. For tests and reports.
  struct Continuation {
    int32_t token;
    int32_t count;
    int32_t newest;  // its newest place, in the order of all that was given
  };
  struct Match {
    int32_t length = 0;  // 0: none
    int32_t places = 0;
    std::vector<Continuation> next;
  };
  Match match(std::span<const int32_t> path) const;

 private:
  struct Offer {
    int32_t node, token;
    size_t slot;
    float logit;
  };
  void append(int32_t token);

  Calibration& calibration_;
  std::vector<int32_t> tokens_;    // all texts, -1 between them
  std::vector<int32_t> previous_;  // (tokens): the place before with the same pair, which ends here; -1 for none
  std::unordered_map<uint64_t, int32_t> newest_;  // the newest place of a pair that something follows
  size_t text_start_ = 0;  // where the growing text begins
  std::vector<Offer> offers_;
};

}  // namespace espalier
