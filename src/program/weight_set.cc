#include "program/weight_set.h"

namespace espalier {
namespace {

std::string shape(int64_t rows, int64_t cols) { return "(" + std::to_string(rows) + ", " + std::to_string(cols) + ")"; }

}  // namespace

Status check_weights(const Program& program, const WeightSet& weights, WeightScope scope) {
  if (weights.entries.size() != program.weights.size())
    return invalid("expected " + std::to_string(program.weights.size()) + " weights, found " + std::to_string(weights.entries.size()));
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const WeightDecl& decl = program.weights[i];
    const WeightSet::Entry& entry = weights.entries[i];
    if (scope == WeightScope::own && !decl.owner.empty()) continue;
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

Result<std::vector<WeightId>> target_weight_ids(const Program& program, const Program& target) {
  std::vector<WeightId> out(program.weights.size(), kNone);
  for (size_t i = 0; i < out.size(); ++i) {
    const WeightDecl& decl = program.weights[i];
    if (decl.owner.empty()) continue;
    if (decl.owner != "target") return invalid("weight " + decl.name + " belongs to '" + decl.owner + "', and only a target's weights can be shared", decl.name);
    for (size_t w = 0; w < target.weights.size(); ++w) {
      const WeightDecl& theirs = target.weights[w];
      if (theirs.name != decl.name || !theirs.owner.empty()) continue;
      if (theirs.kind != decl.kind || theirs.rows != decl.rows || theirs.cols != decl.cols)
        return invalid("weight " + decl.name + ": expected " + shape(decl.rows, decl.cols) + ", and the target's is " + shape(theirs.rows, theirs.cols), decl.name);
      out[i] = static_cast<WeightId>(w);
    }
    if (out[i] == kNone) return invalid("the target has no weight " + decl.name, decl.name);
  }
  return out;
}

Status share_weights(const Program& program, const Program& target, const WeightSet& target_weights, WeightSet& weights) {
  ESPALIER_ASSIGN(const std::vector<WeightId> ids, target_weight_ids(program, target));
  ESPALIER_TRY(check_weights(target, target_weights));
  if (weights.entries.size() != ids.size()) return invalid("expected " + std::to_string(ids.size()) + " weights, found " + std::to_string(weights.entries.size()));
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] != kNone) weights.entries[i] = target_weights.entries[static_cast<size_t>(ids[i])];
  weights.owners.insert(weights.owners.end(), target_weights.owners.begin(), target_weights.owners.end());
  return {};
}

}  // namespace espalier
