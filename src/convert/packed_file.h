// A packed model as one file, and back: the artifact that `convert` writes and the cache keeps (docs/artifact.md).
//
// The file is a container (weights/container.h): a U8 tensor for each matrix, an F32 tensor for each vector, under the
// program's names. Metadata: "espalier.format", "espalier.program" (hash), "espalier.weights" (form asked for),
// "espalier.source" (identity, JSON), and for each matrix "matrix.<name>": pairs of words, e.g.
//   rows 65536 inputs 1024 bits 8 group 128 scale f16 offset no hadamard 64 exact no error 0.00612
#pragma once

#include <span>
#include <string>

#include "base/thread_team.h"
#include "models/model.h"
#include "units/cpu/pack_weights.h"
#include "weights/checkpoint.h"
#include "weights/container.h"

namespace espalier {

inline constexpr const char* kPackedFormat = "1";
const char* weights_form_name(WeightsForm form);  // "auto", "int8", "int4", "file"

// Packs matrix by matrix into the file, so that no more than one of them is in memory. `identity`: JSON text.
// Cancelled by `progress` or failed: nothing is left under the name. Weights that another program owns are left out.
Status write_packed(FileLock lock, const Program& program, const WeightSet& weights, WeightsForm form, const std::string& identity,
                    ThreadTeam& team, const PackProgress& progress);

// The weights of a packed container; views into its bytes, which `owner` keeps alive; entries that another program owns stay
// empty. Refused: another format or program, a
// tensor that is missing or of another size.
Result<PackedWeights> read_packed(const Program& program, std::span<const TensorView> tensors,
                                  std::span<const std::pair<std::string, std::string>> metadata, std::shared_ptr<const void> owner);

// The value of a metadata key, or an empty view.
std::string_view metadata_value(std::span<const std::pair<std::string, std::string>> metadata, std::string_view key);

}  // namespace espalier
