#include "units/static/window_plan.h"

#include <algorithm>
#include <string>

namespace espalier::static_unit {
namespace {

using Path = std::vector<int32_t>;  // nodes from the state on

size_t common_prefix(const Path& a, const Path& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first - a.begin());
}

class Planner {
 public:
  Planner(std::span<const PlanNode> nodes, std::span<const int32_t> written, const PlanLimits& limits)
      : nodes_(nodes), columns_(written), limits_(limits), paths_(nodes.size()), done_(nodes.size()), leaf_(nodes.size(), true),
        written_(written.size()), bases_(written.size(), std::vector<size_t>{0}) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      done_[n] = !nodes[n].wanted;
      if (nodes[n].parent >= 0) {
        paths_[n] = paths_[static_cast<size_t>(nodes[n].parent)];
        leaf_[static_cast<size_t>(nodes[n].parent)] = false;
      }
      paths_[n].push_back(static_cast<int32_t>(n));
    }
  }

  Result<std::vector<PlannedWindow>> run() {
    if (limits_.group) ESPALIER_TRY(check_groups());
    std::vector<PlannedWindow> out;
    while (std::find(done_.begin(), done_.end(), false) != done_.end()) {
      out.push_back(next());
      const PlannedWindow& w = out.back();
      const bool moves = std::any_of(w.parts.begin(), w.parts.end(), [](const PlannedPart& p) { return !p.placed.empty(); });
      if (!moves && std::find(w.fresh.begin(), w.fresh.end(), 1) == w.fresh.end()) return Status(Code::internal, "the planner of windows makes no progress");
    }
    return out;
  }

 private:
  Status check_groups() const {
    for (size_t s = 0; s < columns_.size(); ++s) {
      const auto rows = std::count_if(nodes_.begin(), nodes_.end(), [&](const PlanNode& n) { return static_cast<size_t>(n.sequence) == s; });
      if (rows > limits_.rows) return invalid("sequence " + std::to_string(s) + " has " + std::to_string(rows) + " rows that see each other, and a window holds " + std::to_string(limits_.rows));
    }
    return {};
  }

  PlannedWindow next() {
    PlannedWindow w;
    row_of_.assign(nodes_.size(), -1);
    for (size_t n = 0; n < nodes_.size() && static_cast<int32_t>(w.rows.size()) < limits_.rows; ++n)
      if (!done_[n]) take(w, n);
    for (PlannedPart& part : w.parts) {
      const size_t s = static_cast<size_t>(part.sequence);
      written_[s].resize(static_cast<size_t>(part.base));
      std::erase_if(bases_[s], [&](size_t b) { return b > static_cast<size_t>(part.base); });
      place(w, part);
    }
    if (limits_.block) placed_first(w);
    return w;
  }

  PlannedPart* part_of(PlannedWindow& w, int32_t sequence) {
    for (PlannedPart& p : w.parts)
      if (p.sequence == sequence) return &p;
    return nullptr;
  }

  // Longest written path below `node` on which the sequence can stand.
  size_t base_for(size_t node) const {
    const size_t s = static_cast<size_t>(nodes_[node].sequence);
    const size_t common = std::min(common_prefix(paths_[node], written_[s]), paths_[node].size() - 1);
    if (limits_.any_base) return common;
    size_t best = 0;
    for (size_t b : bases_[s])
      if (b <= common) best = std::max(best, b);
    return best;
  }

  void take(PlannedWindow& w, size_t node) {
    const int32_t sequence = nodes_[node].sequence;
    PlannedPart* part = part_of(w, sequence);
    const size_t base = part == nullptr ? base_for(node) : static_cast<size_t>(part->base);
    if (part != nullptr && (base >= paths_[node].size() || common_prefix(paths_[node], written_[static_cast<size_t>(sequence)]) < base)) return;
    std::vector<int32_t> missing;
    if (limits_.group) {
      if (part != nullptr) return;
      for (size_t n = 0; n < nodes_.size(); ++n)
        if (nodes_[n].sequence == sequence) missing.push_back(static_cast<int32_t>(n));
    } else {
      for (size_t i = base; i < paths_[node].size(); ++i)
        if (row_of_[static_cast<size_t>(paths_[node][i])] < 0) missing.push_back(paths_[node][i]);
    }
    const size_t room = static_cast<size_t>(limits_.rows) - w.rows.size();
    if (missing.size() > room) {
      if (!w.rows.empty()) return;
      missing.resize(room);  // a path longer than a window: its beginning is written, and the rest stands on that
    }
    if (part == nullptr && !fits_beside(w, sequence, base, missing.size())) return;
    if (part == nullptr) w.parts.push_back({sequence, static_cast<int32_t>(base), {}});
    for (int32_t n : missing) {
      row_of_[static_cast<size_t>(n)] = static_cast<int32_t>(w.rows.size());
      w.rows.push_back(n);
      w.fresh.push_back(!done_[static_cast<size_t>(n)]);
      done_[static_cast<size_t>(n)] = true;
    }
  }

  // Several sequences share the columns of one bucket.
  bool fits_beside(const PlannedWindow& w, int32_t sequence, size_t base, size_t rows) const {
    if (w.parts.empty()) return true;
    if (static_cast<int32_t>(w.parts.size()) >= limits_.sequences) return false;
    int64_t columns = static_cast<int64_t>(columns_[static_cast<size_t>(sequence)]) + static_cast<int64_t>(base + rows) + limits_.rows;
    for (const PlannedPart& p : w.parts) columns += columns_[static_cast<size_t>(p.sequence)] + p.base;
    return columns <= limits_.columns;
  }

  // The path that the window writes: what all rows still to come stand on; what the first of them needs where it is far from its
  // base; at the end the trunk, which any commit keeps the beginning of.
  void place(const PlannedWindow&, PlannedPart& part) {
    if (!limits_.writes) return;
    const size_t s = static_cast<size_t>(part.sequence);
    Path target = shared_path(part.sequence, [&](size_t n) { return !done_[n]; });
    const auto first = first_left(part.sequence);
    if (first < nodes_.size() && paths_[first].size() - std::min(target.size(), paths_[first].size()) > static_cast<size_t>(limits_.rows / 2)) target = paths_[first];
    if (first == nodes_.size()) target = shared_path(part.sequence, [&](size_t n) { return leaf_[n] && nodes_[n].wanted; });
    if (common_prefix(target, written_[s]) < static_cast<size_t>(part.base)) return;
    std::vector<int32_t> rows;
    for (size_t i = static_cast<size_t>(part.base); i < target.size() && row_of_[static_cast<size_t>(target[i])] >= 0; ++i) rows.push_back(row_of_[static_cast<size_t>(target[i])]);
    const int64_t room = static_cast<int64_t>(limits_.columns) - columns_[s] - part.base;
    rows.resize(static_cast<size_t>(std::clamp<int64_t>(room, 0, static_cast<int64_t>(rows.size()))));
    if (limits_.aligned) rows.resize(rows.size() / kBlockRows * kBlockRows);
    if (rows.empty()) return;
    for (size_t i = 0; i < rows.size(); ++i) written_[s].push_back(target[static_cast<size_t>(part.base) + i]);
    bases_[s].push_back(written_[s].size());
    part.placed = std::move(rows);
  }

  size_t first_left(int32_t sequence) const {
    for (size_t n = 0; n < nodes_.size(); ++n)
      if (!done_[n] && nodes_[n].sequence == sequence) return n;
    return nodes_.size();
  }
  template <typename Fn>
  Path shared_path(int32_t sequence, Fn counts) const {
    Path shared;
    bool is_first = true;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n].sequence != sequence || !counts(n)) continue;
      if (is_first) shared = paths_[n];
      else shared.resize(common_prefix(shared, paths_[n]));
      is_first = false;
    }
    return shared;
  }

  // A block is written from the window's first row on.
  void placed_first(PlannedWindow& w) {
    std::vector<int32_t>& placed = w.parts[0].placed;
    PlannedWindow sorted{{}, {}, w.parts};
    std::vector<bool> moved(w.rows.size());
    const auto move = [&](size_t r) {
      sorted.rows.push_back(w.rows[r]);
      sorted.fresh.push_back(w.fresh[r]);
      moved[r] = true;
    };
    for (int32_t r : placed) move(static_cast<size_t>(r));
    for (size_t r = 0; r < w.rows.size(); ++r)
      if (!moved[r]) move(r);
    for (size_t i = 0; i < placed.size(); ++i) sorted.parts[0].placed[i] = static_cast<int32_t>(i);
    w = std::move(sorted);
  }

  std::span<const PlanNode> nodes_;
  std::span<const int32_t> columns_;
  const PlanLimits& limits_;
  std::vector<Path> paths_;  // by node, itself last
  std::vector<bool> done_, leaf_;
  std::vector<Path> written_;                // by sequence: nodes that windows so far have written
  std::vector<std::vector<size_t>> bases_;   // by sequence: lengths of that path at which frames are known
  std::vector<int32_t> row_of_;              // by node: its row in the window that is being made, or -1
};

}  // namespace

Result<std::vector<PlannedWindow>> plan_windows(std::span<const PlanNode> nodes, std::span<const int32_t> written, const PlanLimits& limits) {
  return Planner(nodes, written, limits).run();
}

}  // namespace espalier::static_unit
