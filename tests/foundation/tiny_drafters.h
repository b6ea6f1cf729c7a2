// The tiny drafters of tests/fixtures/dspark with their targets and what PyTorch says about them, loaded for a test.
#pragma once

#include "models/dspark.h"
#include "tiny_models.h"

namespace espalier::test {

struct TinyDrafter {
  TinyModel target;
  std::unique_ptr<Checkpoint> checkpoint;
  DrafterPlan plan;
  WeightSet weights;  // bound, with the target's
  // Expectation
  std::vector<int32_t> prompt, drafts;
  int32_t anchor = 0;
  std::vector<float> hidden, base_logits, chain_logits, confidence;  // (block, ...)
};

std::vector<std::string> all_tiny_drafters();
std::string drafter_path(const std::string& name);
// Fails the test (ADD_FAILURE) and returns an empty object when something is wrong.
TinyDrafter load_drafter(const std::string& name);

// Target and drafter compiled on a unit.
struct DrafterPair {
  std::unique_ptr<Model> target, drafter;
};
DrafterPair compile_pair(Unit& unit, const TinyDrafter& tiny);

// What the target's taps say of the prompt, side by side: (rows, taps * hidden).
std::vector<float> tap_rows(Model& target, const DrafterPlan& plan, const std::vector<int32_t>& prompt);
// Keeps context rows [first, last) of the prompt.
void keep_context(Model& drafter, State& state, const std::vector<int32_t>& prompt, const std::vector<float>& taps, size_t first, size_t last);
struct DraftedBlock {
  std::vector<float> logits, hidden;  // (block, vocabulary), (block, hidden)
};
// Runs the block behind what the state holds, and drops its rows.
DraftedBlock draft_block(Model& drafter, State& state, const DrafterPlan& plan, int32_t anchor);

}  // namespace espalier::test
