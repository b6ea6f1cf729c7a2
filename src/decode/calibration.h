// What a source's probabilities are worth: Platt scaling, fitted offline from records and refined online.
//
// Numerics  own exp and log, double where fitted, fp32 where applied: the same on every machine.
// Threads   one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier {

// logit(p) with p held within [1e-6, 1 - 1e-6], and back.
float logit_of(float p);
float probability_of(float logit);

// calibrated = sigma(a * logit + b)
struct Platt {
  float a = 1, b = 0;
};
inline float apply(const Platt& platt, float logit) { return probability_of(platt.a * logit + platt.b); }

// A proposal whose parent the target's text went through.
struct ScoredOutcome {
  float logit;  // of the source's own probability
  bool accepted;
};

// Maximum likelihood under a Gaussian prior round `start` that weighs as much as `prior` outcomes at p = 1/2 do (at least a
// small one: separable outcomes have no maximum). a stays within [0.05, 10].
Platt fit_platt(std::span<const ScoredOutcome> outcomes, Platt start = {}, float prior = 1);

// One Platt a slot: a depth for some sources, a match length for others. Shared by all sequences of a kind of source.
class Calibration {
 public:
  // The last of `start` serves every later slot. `memory`: outcomes after which an old one weighs 1/e; 0: nothing is learnt.
  explicit Calibration(std::vector<Platt> start, float memory = 4096);
  float probability(size_t slot, float logit) const { return apply(platts_[slot_of(slot)], logit); }
  // Each of many, in place: logits become probabilities, to the same bits.
  void probabilities(size_t slot, std::span<float> values) const;
  void learn(size_t slot, float logit, bool accepted);
  std::span<const Platt> platts() const { return platts_; }

 private:
  struct Curvature {
    double aa, ab, bb;
  };
  size_t slot_of(size_t slot) const { return slot < platts_.size() ? slot : platts_.size() - 1; }
  std::vector<Platt> platts_;
  std::vector<Curvature> curvature_;
  double keep_;
  bool learns_;
};

// How well probabilities were kept: plain data for reports.
struct Reliability {
  struct Bin {
    int64_t count = 0, accepted = 0;
    double predicted = 0;  // sum of the probabilities
  };
  std::array<Bin, 10> bins{};  // of [0, 0.1), [0.1, 0.2) ... [0.9, 1]
  double log_loss = 0;         // sum, natural logarithm
  int64_t count() const;
  double mean_log_loss() const { return count() == 0 ? 0 : log_loss / static_cast<double>(count()); }
  void add(float probability, bool accepted);
  void merge(const Reliability& other);
};

}  // namespace espalier
