// The drafter of an engine: found beside its target or where it was named, placed on the unit of its target, checked.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decode/markov_head.h"
#include "models/dspark.h"
#include "units/unit.h"
#include "weights/checkpoint.h"

namespace espalier {

struct Drafter {
  Drafter(std::string from, Checkpoint c, DrafterPlan p);

  std::string path;
  Checkpoint checkpoint;
  DrafterPlan plan;
  std::unique_ptr<Model> model;
  MarkovHead head;                // borrows plan.head
  std::vector<std::string> taps;  // "layer.N" of the target, in the order in which `context` reads them
};

// `model`/drafter, or drafter/ beside a file; empty where there is none.
std::string find_drafter(const std::string& model);
// Reads it against the program of its target. Nothing is placed yet.
Result<std::unique_ptr<Drafter>> plan_drafter_at(const std::string& path, const Program& target);

// One sequence of a drafter's call. `state` holds one row for each token that the target's state holds.
struct DrafterRows {
  State* state;
  std::span<const int32_t> tokens;  // context: of the rows; block: the root alone
  const float* features = nullptr;  // context: (tokens, taps * hidden)
};
// Reads what targets have kept, for all sequences in one call; their states are committed.
Status run_context(Drafter& drafter, std::span<const DrafterRows> rows);
// The block of each sequence behind its root: logits (sequences * block_size, vocabulary), lse and the tap "hidden", in order.
Status run_block(Drafter& drafter, std::span<const DrafterRows> roots, Outputs& out);

}  // namespace espalier
