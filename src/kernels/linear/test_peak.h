// The two ceilings of a machine, for benches: reading memory, and multiply-adds of int8 from registers alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"

namespace espalier::test_peak {

// Reads bytes (rounded down to streams * 256) in that many streams; gives their exclusive or.
uint64_t read(const uint8_t* data, size_t bytes, uint32_t streams);
// Runs the instruction set's own multiply-add of bytes in 8 or more independent chains. Gives the MACs done.
uint64_t int8_macs(Isa isa, uint64_t steps);

}  // namespace espalier::test_peak
