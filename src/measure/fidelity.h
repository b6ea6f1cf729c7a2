// How far one model's choices are from another's: teacher-forced, on the same tokens.
//
// At each position both models have read the same tokens. A position agrees where both have the same largest logit. The divergence is
// KL(reference || model) in nats, from both models' logits in double. Where a call has no answer (its numbers are not finite), its
// positions and those behind it in the text count as differing and as unanswered, and add nothing to the divergence.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure/fidelity_text.h"

namespace espalier {

struct FidelityCount {
  int64_t positions = 0;
  int64_t agree = 0;
  int64_t unanswered = 0;
  double divergence = 0;  // summed over the answered ones

  double percent() const { return positions == 0 ? 0.0 : 100.0 * static_cast<double>(agree) / static_cast<double>(positions); }
  double mean_divergence() const { return positions == unanswered ? 0.0 : divergence / static_cast<double>(positions - unanswered); }
};

struct FidelityBand {
  int64_t begin = 0, end = 0;  // positions [begin, end) of their texts
  FidelityCount assistant, all;
};

// One position where the choices differ.
struct FidelityDifference {
  std::string text;
  int64_t position = 0;
  bool assistant = false;
  int32_t token = 0;             // the token read there
  int32_t reference = 0, model = 0;  // what each would write next
  double gap = 0;                // in the reference's logits, between its choice and the model's
  double model_gap = 0;          // in the model's, the other way round
};

struct Fidelity {
  FidelityCount assistant, all;
  std::vector<FidelityBand> bands;  // those that hold positions
  std::vector<FidelityDifference> differences;  // without the unanswered
  std::string unanswered_why;       // the first reason
  int64_t texts = 0;                // of which something was compared

  // The count that decides: the assistant's positions, or all where the text has none of them.
  const FidelityCount& deciding() const { return assistant.positions > 0 ? assistant : all; }
};

using FidelityProgress = std::function<bool(int64_t done, int64_t total)>;  // positions

// Runs every text on both, in calls of 64 rows. `most` > 0: ends behind the text that reaches as many deciding positions.
// Fails: vocabularies of different sizes, a tokenizer that reads the texts differently, a unit's failure on the reference's side.
Result<Fidelity> measure_fidelity(Engine::Impl& model, Engine::Impl& reference, const FidelityTexts& texts, int64_t most, const FidelityProgress& progress = {});

Value fidelity_json(const Engine::Impl& engine, const Fidelity& fidelity);
// Tables, and at most `shown` of the differences.
std::string fidelity_text(const Engine::Impl& engine, const Fidelity& fidelity, size_t shown);

}  // namespace espalier
