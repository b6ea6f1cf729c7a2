// Fills the inputs of a lowered function for one window (lower.h lists them). Pure.
#pragma once

#include <vector>

#include "kernels/rope/rope_table.h"
#include "lower/evaluate.h"
#include "units/static/static_state.h"

namespace espalier::static_unit {

struct WindowRow {
  int32_t part;
  const StateRow* row;
  std::vector<int32_t> chain;  // window rows: itself, its parent, ... up to the base
};
struct WindowPart {
  int32_t first_column;  // of the bucket
  int32_t columns;       // that its rows see
  std::vector<int32_t> placed;  // window rows that become the next columns
};
struct WindowLayout {
  std::vector<WindowRow> rows;
  std::vector<WindowPart> parts;
  bool group = false;
  std::vector<int32_t> chosen;  // window rows whose head is wanted (HeadRows::chosen)
};

// What the host looks up for a model.
struct HostTables {
  std::vector<float> embedding;  // (vocabulary, width); empty: the program embeds nothing
  size_t embedding_width = 0;
  std::vector<RopeTable> ropes;
};

std::vector<NamedValues> window_inputs(const LoweredProgram& program, const LoweredFunction& function, const Function& original, const HostTables& tables, const WindowLayout& layout);

}  // namespace espalier::static_unit
