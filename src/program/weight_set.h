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

// Every declared weight is there with the declared shape. The status names the first that is not.
Status check_weights(const Program& program, const WeightSet& weights);

}  // namespace espalier
