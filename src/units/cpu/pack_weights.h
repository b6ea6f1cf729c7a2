// From the weights of a checkpoint to what the CPU kernels read. Done once; convert writes the result to disk.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "kernels/linear/packed.h"
#include "program/program.h"
#include "program/weight_set.h"

namespace espalier {

enum class WeightsForm {
  automatic,  // the file's own grouping where it has one; int8 for floats
  int8,       // groups of 128 with the block Hadamard of 64
  int4,       // groups of 32; tables of tokens stay int8
  file,       // as automatic, and refuses float files
};

struct PackOptions {
  WeightsForm form = WeightsForm::automatic;
};

struct PackedWeights {
  struct Entry {
    PackedMatrix matrix;         // matrices
    std::vector<float> vector;   // vectors and taps
    double error = 0;            // relative rms error against the source; 0 where the form is exact
    bool exact = true;
  };
  std::vector<Entry> entries;  // by WeightId
  uint64_t matrix_bytes() const;
};

// The form that a matrix of the source gets. `is_table`: read by embed or head.
Result<PackedForm> packed_form(const SourceMatrix& source, WeightsForm form, bool is_table);

// By WeightId: read by an embed or a head.
std::vector<bool> table_weights(const Program& program);

// done and total in bytes of packed weights; called from the calling thread. Returning false cancels.
using PackProgress = std::function<bool(uint64_t done, uint64_t total)>;

// Weights that another program owns may be missing: share_packed fills them in.
Result<PackedWeights> pack_weights(const Program& program, const WeightSet& weights, const PackOptions& options, ThreadTeam& team,
                                   const PackProgress& progress = {});
// One matrix, for writers that stream a model to disk without holding all of it.
Result<PackedWeights::Entry> pack_matrix(const SourceMatrix& source, const PackedForm& form, ThreadTeam& team);

// Fills in the entries that the target owns; they share its memory.
Status share_packed(const Program& program, const Program& target, const PackedWeights& target_weights, PackedWeights& weights);

// The packed values as fp32 in the basis of the source, as a weight set for the reference unit: what the CPU unit is
// compared with, since quantisation is not its error.
Result<WeightSet> dequantized(const Program& program, const PackedWeights& weights);

}  // namespace espalier
