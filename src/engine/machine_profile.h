// What calls of a model take on a machine, measured once (`espalier profile`) and kept in the cache as
// profile/<machine>-<model>.json. Another machine, program, weights form, K/V type or number of threads has another file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/cost_curve.h"
#include "espalier/status.h"

namespace espalier {

// What the times hold for.
struct ProfileKey {
  std::string cpu;       // as the system names it; "unknown" where it does not
  std::string kernels;   // instruction set of the unit
  uint32_t cores = 0, threads = 0;
  uint64_t program = 0;  // hash
  std::string weights, kv;
  bool operator==(const ProfileKey&) const = default;
};

// A drafter's calls at a context.
struct DrafterTimes {
  double context = 0;
  double block_ms = 0;                 // one sequence's block
  std::vector<CostSample> context_ms;  // reading that many kept rows
};

struct MachineProfile {
  ProfileKey key;
  std::vector<CostSample> samples;   // of the target: a median for each (context, rows)
  std::vector<DrafterTimes> drafter;  // empty without one
};

// The processor's name.
std::string cpu_name();
// In the cache folder; fails where there is none.
Result<std::string> profile_path(const ProfileKey& key);
// not_found: there is none. corrupt: a sentence that names the file and what is wrong with it, another key's times included.
Result<MachineProfile> load_profile(const ProfileKey& key);
// Replaces what is there, by rename.
Status store_profile(const MachineProfile& profile);

}  // namespace espalier
