// A drafter checked against what its maker wrote down: wrong taps, a wrong rotation or another target still run, and only
// accept less. `selfcheck.json` in the drafter's folder (tools/train/replay.py writes it) holds
//   prompt_ids, anchor          the text, and its next token
//   drafts                      the greedy chain of the block: argmax of base logits + Markov bias of the token before
//   base_logits_top             for each slot {"ids": [...], "logits": [...]}: the largest base logits
//   base_logits_logsumexp       for each slot
#pragma once

#include <string>

#include "base/value.h"
#include "models/dspark.h"
#include "units/unit.h"

namespace espalier {

struct SelfcheckReport {
  int32_t drafts = 0, equal_drafts = 0;  // equal_drafts: up to the first that differs
  double logit_error = 0;  // rms difference of the listed base logits and log-sum-exps, over the rms of the listed logits round
                           // their slot's mean
};
// Runs target and drafter over the text of a selfcheck. Refused: a file that is not of the form above.
Result<SelfcheckReport> run_selfcheck(const Value& file, Model& target, Model& drafter, const DrafterPlan& plan);

struct SelfcheckBounds {
  bool all_drafts;          // each draft must be the file's
  double logit_error_max;
};
// The reference unit with the weights that the file was made with, not with a quantised or converted copy of them.
inline constexpr SelfcheckBounds kExactBounds{true, 1e-3};
// Quantised weights or activations. Measured on the demo model: 0.03 with int8 weights, 0.32 with int4; 0.58 and more
// with taps one layer off or swapped (some of which keep all nine drafts), 1.3 with the wrong rotation.
inline constexpr SelfcheckBounds kQuantisedBounds{false, 0.45};

// Ok where the folder has no selfcheck.json. A drafter that does not fit gives a sentence that says what to look at.
Status check_drafter(const std::string& folder, Model& target, Model& drafter, const DrafterPlan& plan, const SelfcheckBounds& bounds);

}  // namespace espalier
