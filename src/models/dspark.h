// The DSpark drafter: a small network that reads the target's residual stream and proposes a block of tokens at once
// (arXiv 2607.05147; tensors and config as published with LFM2.5-2.6B-DSpark and by DeepSpec for Qwen3).
//
// Functions of its program
//   context  input "taps" (rows, taps * H): the tapped residual streams of a row side by side, in the order of tap_layers.
//            Keeps K and V of the rows, nothing else. One row for each token that the target's state holds.
//   block    rows [root, mask, mask, ...] (block_size of them) of one sequence at positions length ... length + block_size - 1;
//            head: base logits of each slot; output "hidden" (rows, H): the normed hidden rows. Nothing is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "program/draft_head.h"

namespace espalier {

struct DrafterPlan {
  ModelPlan model;  // weights with owner "target" have an empty tensor name in `sources`
  DraftHead head;
  int32_t block_size = 0;  // proposals of one block
  int32_t mask_token = 0;
  std::vector<int32_t> tap_layers;  // of the target; the taps' names are "layer.N"
};

// Reads a drafter for this target. Refused: another hidden size, vocabulary or layer count than the target's, a tap that is no
// layer of it, an unknown head, anything that plan_model would refuse.
Result<DrafterPlan> plan_drafter(const Checkpoint& drafter, const Program& target);

}  // namespace espalier
