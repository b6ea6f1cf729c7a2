// The cache folder: packed weights made on first use, taken after that.
//
// Root: $ESPALIER_CACHE, else $XDG_CACHE_HOME/espalier, else ~/.cache/espalier; relative values are refused. One file for each
// (model path, weights form): a changed model replaces it. Stale or damaged files are rebuilt, never used. A cache that
// cannot be written is a notice: the weights are then packed in memory.
#pragma once

#include <string>
#include <vector>

#include "convert/packed_file.h"
#include "models/dspark.h"

namespace espalier {

Result<std::string> cache_root();

struct CacheEntry {
  std::string path;
  std::string kind;    // "weights" | "profile"
  std::string source;  // path of the model it was made from, where known
  uint64_t bytes = 0;
};
// Everything in the cache, largest first. A cache that is not there is empty.
Result<std::vector<CacheEntry>> list_cache();
// Removes all of it but files that somebody is writing; returns what was removed.
Result<std::vector<CacheEntry>> clear_cache();

struct PackedModel {
  PackedWeights weights;
  bool from_cache = false;
  std::vector<std::string> notices;
};
// The packed weights of a model: those of a converted folder, those in the cache, or new ones. Checksums of what is taken are
// verified. `use_cache` false: always packs in memory (a converted folder is used as it is).
Result<PackedModel> packed_model(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form, ThreadTeam& team,
                                 const PackProgress& progress, bool use_cache = true);

// The packed weights of a drafter, as packed_model; those that the target owns share its memory. Form `file` is that of the
// target's file and says nothing of the drafter's: it counts as automatic.
Result<PackedModel> packed_drafter(const Checkpoint& drafter, const DrafterPlan& plan, const Program& target, const PackedWeights& target_weights,
                                   WeightsForm form, ThreadTeam& team, const PackProgress& progress, bool use_cache = true);

// The numbers of a plan for a unit that wants floats: bind_weights, or a converted folder's weights dequantised.
Result<WeightSet> float_weights(const ModelPlan& plan, const Checkpoint& checkpoint);

}  // namespace espalier
