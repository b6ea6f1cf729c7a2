// How the rows of a call are dealt to fixed windows. Pure: no numbers, no states; tested on its own.
//
// A sequence is what its state has written (K/V in the first columns, frames behind them), then nodes: rows that were accepted
// and are not written yet, and the rows of the call. A window holds nodes of several sequences. In it a sequence stands on a
// *base*: the first `base` nodes of a path that earlier windows of this call have written; every other ancestor of a row is fed
// again in the window. A window may write a path of its own rows behind the base, and later windows may stand on that.
//
// Guarantees  every wanted node comes exactly once as `fresh`; all its ancestors are below the base or in its window; a base
//             is a length at which frames are known (the state's own, or the end of a written path).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "espalier/status.h"
#include "lower/lowered.h"

namespace espalier::static_unit {

struct PlanNode {
  int32_t sequence;
  int32_t parent;  // an earlier node of the sequence, or kState (-1)
  bool wanted;     // a row of the call; else it is only fed again where others need it
};

struct PlanLimits {
  int32_t rows = 64;          // of a window
  int32_t sequences = 1;      // that a window can hold
  int32_t columns = 0;        // of the largest bucket
  bool aligned = false;       // written paths end at multiples of kBlockRows
  bool block = false;         // a window writes its first rows: one sequence, the placed path first
  bool writes = true;         // false: the function keeps nothing
  bool group = false;         // rows see all rows of their sequence, which must share a window
  bool any_base = false;      // no frames: a sequence can stand on any part of a written path
};

struct PlannedPart {
  int32_t sequence;
  int32_t base = 0;             // nodes of the path that earlier windows wrote, and that this one reads
  std::vector<int32_t> placed;  // window rows that become columns written + base, + 1, ...: a path
};
struct PlannedWindow {
  std::vector<int32_t> rows;   // nodes
  std::vector<uint8_t> fresh;  // by row: its answers count
  std::vector<PlannedPart> parts;
};

// `written`: columns of each sequence that are in its state. Refused: a group of more rows than a window has.
Result<std::vector<PlannedWindow>> plan_windows(std::span<const PlanNode> nodes, std::span<const int32_t> written, const PlanLimits& limits);

}  // namespace espalier::static_unit
