// The two ceilings of this machine, measured: what decides the time of a call.
#pragma once

#include <cstddef>
#include <memory>

#include "base/thread_team.h"
#include "kernels/isa.h"

namespace espalier {

struct Ceilings {
  double read_gbps = 0;  // reading memory: best of 1, 2, 4 and 8 streams a thread, in 10^9 bytes a second
  double int8_gops = 0;  // multiply-adds of bytes from registers, a MAC counted as two operations, in 10^9 a second
};

// Measures on a team of its own; keeps its buffer between probes, since fresh memory reads slower. Not thread-safe.
class MachineProbe {
 public:
  // `bytes` of buffer: at least 1 GiB to be free of caches; less is for tests. Fewer when the memory is refused.
  MachineProbe(Isa isa, uint32_t threads, size_t bytes = size_t{1} << 30);
  ~MachineProbe();
  Ceilings measure();  // about 0.2 s

 private:
  Isa isa_;
  ThreadTeam team_;
  size_t bytes_;
  unsigned char* data_;
};

}  // namespace espalier
