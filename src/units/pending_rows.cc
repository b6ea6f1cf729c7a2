#include "units/pending_rows.h"

#include <string>

namespace espalier {

Result<bool> PendingRows::begin(const Call& call, int32_t sequence, int32_t length) {
  std::vector<Entry> entries;
  std::vector<int32_t> entry_of(call.rows.size(), kState);
  for (size_t r = 0; r < call.rows.size(); ++r) {
    const Row& row = call.rows[r];
    if (row.sequence != sequence) continue;
    if (row.parent == kState && row.position != length)
      return invalid("row " + std::to_string(r) + " follows a state of " + std::to_string(length) + " rows and has position " +
                     std::to_string(row.position));
    entry_of[r] = static_cast<int32_t>(entries.size());
    const int32_t parent = row.parent == kState ? kState : entry_of[static_cast<size_t>(row.parent)];
    entries.push_back({static_cast<int32_t>(r), row.token, row.position, parent});
  }
  const bool continues = call.function.segment > 0 && function_.role == call.function.role &&
                         function_.segment < call.function.segment && function_.segment != kNone && entries == entries_;
  function_ = call.function;
  if (continues) return false;
  entries_ = std::move(entries);
  return true;
}

void PendingRows::clear() {
  entries_.clear();
  function_ = {};
}

Result<std::vector<int32_t>> PendingRows::path(std::span<const int32_t> call_rows) const {
  std::vector<int32_t> out;
  int32_t previous = kState;
  for (int32_t row : call_rows) {
    int32_t found = kNone;
    for (size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].call_row == row) found = static_cast<int32_t>(i);
    if (found == kNone) return invalid("commit: row " + std::to_string(row) + " is not pending on this state");
    if (entries_[static_cast<size_t>(found)].parent != previous)
      return invalid("commit: row " + std::to_string(row) + " does not continue the path");
    out.push_back(found);
    previous = found;
  }
  return out;
}

}  // namespace espalier
