// The DSpark drafter: a small network that reads the target's residual stream and proposes a block of tokens at once
// (arXiv 2607.05147; tensors and config as published for LFM2.5 and by DeepSpec for Qwen3, or as a GGUF file of architecture
// "dflash").
//
// Functions of its program
//   context  input "taps" (rows, taps * H): the tapped residual streams of a row side by side, in the order of tap_layers.
//            Keeps K and V of the rows, nothing else. One row for each token that the target's state holds.
//   block    rows [root, mask, mask, ...] (block_size of them) of one sequence at positions length ... length + block_size - 1,
//            each the child of the one before; head: base logits of each slot; output "hidden" (rows, H): the normed hidden rows.
//            Slot j proposes the token at position length + 1 + j. Nothing is kept: commit of its rows is an error of the caller.
//   markov   input "direction" (rows, rank), head: the Markov bias of every token as the unit has it, for the best ids of many
//            directions at once. Nothing is kept. Not where the head is of kind none.
// Embedding and head are the target's (WeightDecl::owner "target"), or the drafter's own where its file carries them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "program/draft_head.h"

namespace espalier {

struct DrafterPlan {
  ModelPlan model;  // weights with owner "target" have an empty tensor name in `sources`
  DraftHead head;   // its tables are views into the checkpoint where that holds floats
  int32_t block_size = 0;  // proposals of one block
  int32_t mask_token = 0;
  std::vector<int32_t> tap_layers;  // of the target, ascending; the taps' names are "layer.N"
};

// Reads a drafter for this target. Refused: another hidden size, vocabulary or layer count than the target's, a tap that is no
// layer of it or its last one, an unknown head, unknown tensors, anything that plan_model would refuse. The checkpoint must
// outlive the plan.
Result<DrafterPlan> plan_drafter(const Checkpoint& drafter, const Program& target);

// The drafter's numbers for a unit that wants floats (the CPU unit: packed_drafter in convert/cache.h). Entries with owner
// "target" are views of the target's. Both checkpoints must outlive the set.
Result<WeightSet> bind_drafter_weights(const DrafterPlan& plan, const Checkpoint& drafter, const Program& target, const WeightSet& target_weights);

}  // namespace espalier
