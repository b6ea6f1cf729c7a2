// The numbers of a program: one entry for each WeightDecl, in order. Views into a checkpoint or memory that `owner` keeps.
//
// Immutable once filled, thread-safe for reading.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "program/program.h"
#include "weights/source_matrix.h"

namespace espalier {

struct WeightSet {
  struct Entry {  // matrices have `matrix`, everything else `vector` (row-major)
    std::optional<SourceMatrix> matrix;
    std::vector<float> vector;
  };
  std::vector<Entry> entries;  // by WeightId
  std::vector<std::shared_ptr<const void>> owners;
};

// Every declared weight is there with the declared shape. The status names the first that is not. `own`: those that another
// program owns may be missing.
enum class WeightScope { all, own };
Status check_weights(const Program& program, const WeightSet& weights, WeightScope scope = WeightScope::all);

// By WeightId: the weight of `target` that a declaration with owner "target" names, kNone for the program's own. Refused: a name
// or shape that the target does not have, another owner.
Result<std::vector<WeightId>> target_weight_ids(const Program& program, const Program& target);
// Fills in the entries that the target owns. They share its memory.
Status share_weights(const Program& program, const Program& target, const WeightSet& target_weights, WeightSet& weights);

}  // namespace espalier
