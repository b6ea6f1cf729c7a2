// A function (or a segment of one) as the CPU runs it: phases with a barrier between them.
//
//   rows     everything that a row does alone: embed, norm, rope, K/V into fresh lanes, swiglu, add, quantise, taps
//   linear   matrix products that read the same quantised rows; threads take panels
//   conv     short convolution; threads take channels
//   attend   attention items, then merges
//   head     logits of the rows that ask, in blocks, with what they want from them
//
// Adjacent row ops share a phase. `add` right behind a `linear` becomes its residual.
#pragma once

#include <vector>

#include "program/memory_plan.h"
#include "program/program.h"
#include "units/cpu/pack_weights.h"

namespace espalier::cpu {

enum class RowOpKind { embed, norm, rope, keep, swiglu, add, quantise, tap };

struct RowOp {
  RowOpKind kind;
  const Op* op = nullptr;        // not for quantise and tap
  ValueId value = kNone;         // quantise: what is read; tap: what is copied
  int32_t index = kNone;         // quantise: which QuantisedSet; tap: which Port of Function::outputs
};

// One quantised form of a value: all linears of a phase that agree in group and Hadamard share it.
struct QuantisedSet {
  ValueId value;
  PackedForm form;  // cols, group and hadamard count
};

struct LinearJob {
  const Op* op;
  ValueId out;
  ValueId residual = kNone;
  int32_t set;
};

struct Phase {
  enum class Kind { rows, linear, conv, attend, head } kind;
  std::vector<RowOp> row_ops;
  std::vector<LinearJob> linears;
  const Op* op = nullptr;  // conv, attend, head
};

struct Schedule {
  const Function* function = nullptr;
  int32_t segment = kNone;
  MemoryPlan memory;
  std::vector<Phase> phases;
  std::vector<QuantisedSet> sets;  // by QuantisedSet index; a set's memory is free again behind its linear phase
};

// `function` must outlive the schedule.
Schedule make_schedule(const Function& function, int32_t segment, const PackedWeights& weights);

}  // namespace espalier::cpu
