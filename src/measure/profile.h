// `espalier profile`: what calls of a model and of its drafter take on this machine, by rows and context.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/machine_profile.h"

namespace espalier {

struct ProfileOptions {
  std::vector<double> contexts = {0, 1024, 4096, 16384};  // those that the engine's context holds are taken
  int32_t rounds = 5;      // medians are taken over as many, fewer (at least 3) where a context would take longer than `seconds`
  double seconds = 60;     // of a context
};

using ProfileProgress = std::function<bool(const std::string& what)>;

// All widths from 1 to 64, fewer where they would take too long (1 to 9, then those round the steps of kernels). Contexts are
// made up (measure/synthetic_state.h). Widths follow each other in an order that changes each round.
Result<MachineProfile> measure_profile(Engine::Impl& engine, const ProfileOptions& options, const ProfileProgress& progress = {});

// {"path", "machine", "contexts": [{"context", "ms": [64 numbers, isotonic], "measured": [widths], "block_ms", "reads"}]}
Value profile_json(const MachineProfile& profile, const std::string& path);
std::string profile_text(const MachineProfile& profile, const std::string& path);

}  // namespace espalier
