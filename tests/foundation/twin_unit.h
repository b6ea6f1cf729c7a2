// A static unit that runs each window twice, on a vendor's runtime and on the evaluator, and compares every output and every state bit for
// bit; and calls of each kind to run on it.
#pragma once

#include <functional>
#include <set>

#include "tiny_drafters.h"
#include "units/static/static_unit.h"

namespace espalier::test {

// What twins have compared.
struct Compared {
  std::set<std::string> functions;
  size_t runs = 0, values = 0;
};

// Goes on with the runtime's answers. A difference fails the test, naming function, port and the first value; `compared` outlives the unit.
std::unique_ptr<Unit> twin_unit(const StaticOptions& options, const MakeBackend& runtime, Arithmetic arithmetic, Compared& compared);

// Null, and the test fails, where the unit refuses.
std::unique_ptr<Model> compiled(Unit& unit, const Program& program, const WeightSet& weights);

struct Demo {
  Demo();
  Checkpoint checkpoint, drafter_checkpoint;
  ModelPlan plan;
  DrafterPlan drafter;
  WeightSet weights, drafter_weights;
};

// Prefill, a chain, three trees with accept lengths from none on, a change of buckets in mid-sequence, and going back.
void run_everything(Model& model, const StaticOptions& options, uint64_t seed);
// Context rows and blocks of a drafter, into the next bucket.
void draft_everything(Model& drafter, const DrafterPlan& plan, const StaticOptions& options, uint64_t seed);
// run_everything() on twins of a tiny model of each family, fp16 weights: the ways of writing K/V in turn, from `first` on, and attention in
// parts in the first. `runtime` is asked for each, by name.
void run_families(StaticOptions base, KvForm first, const std::function<MakeBackend(const std::string& name)>& runtime, Arithmetic arithmetic);

}  // namespace espalier::test
