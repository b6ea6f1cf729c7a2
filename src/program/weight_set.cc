#include "program/weight_set.h"

namespace espalier {
namespace {

std::string shape(int64_t rows, int64_t cols) { return "(" + std::to_string(rows) + ", " + std::to_string(cols) + ")"; }

}  // namespace

Status check_weights(const Program& program, const WeightSet& weights) {
  if (weights.entries.size() != program.weights.size())
    return invalid("expected " + std::to_string(program.weights.size()) + " weights, found " + std::to_string(weights.entries.size()));
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const WeightDecl& decl = program.weights[i];
    const WeightSet::Entry& entry = weights.entries[i];
    if (decl.kind == WeightDecl::Kind::matrix) {
      if (!entry.matrix) return invalid("weight " + decl.name + " is missing", decl.name);
      const auto rows = static_cast<int64_t>(entry.matrix->rows()), cols = static_cast<int64_t>(entry.matrix->cols());
      if (rows != decl.rows || cols != decl.cols)
        return invalid("weight " + decl.name + ": expected " + shape(decl.rows, decl.cols) + ", found " + shape(rows, cols), decl.name);
    } else if (entry.vector.size() != static_cast<size_t>(decl.rows) * static_cast<size_t>(decl.cols)) {
      return invalid("weight " + decl.name + ": expected " + std::to_string(int64_t{decl.rows} * decl.cols) + " values, found " + std::to_string(entry.vector.size()), decl.name);
    }
  }
  return {};
}

}  // namespace espalier
