// Which values share a buffer. A value lives from the op that writes it to the last op (or output) that reads it.
#pragma once

#include "program/program.h"

namespace espalier {

struct MemoryPlan {
  std::vector<int32_t> slot;        // by ValueId; kNone: the value does not occur in the segment
  std::vector<int32_t> slot_width;  // floats a row, by slot
  // Floats a row over all slots.
  int64_t width() const;
};

// Buffers for one segment of a function (kNone: the whole function). No op's output shares a slot with one of its inputs,
// except `add`, whose output takes the slot of its first input when that dies there. Outputs that a caller reads live to
// the end. Values that are inputs of the segment get slots like any other.
MemoryPlan plan_memory(const Function& function, int32_t segment = kNone);

}  // namespace espalier
