// The rows of a state's last call, and which of them a commit may keep. Shared by all units; no numbers live here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "espalier/status.h"
#include "program/call.h"

namespace espalier {

class PendingRows {
 public:
  struct Entry {
    int32_t call_row;  // index in Call::rows
    int32_t token;
    int32_t position;
    int32_t parent;  // index of an entry, or kState
    bool operator==(const Entry&) const = default;
  };

  // Takes the rows of `sequence` from a call on a state that holds `length` rows. The same rows under a later segment of
  // the same function continue what is pending (returns false); anything else replaces it (returns true).
  // Refused: a row on the state whose position is not `length`.
  Result<bool> begin(const Call& call, int32_t sequence, int32_t length);
  void clear();
  int32_t size() const { return static_cast<int32_t>(entries_.size()); }
  std::span<const Entry> entries() const { return entries_; }
  // Entry indices of a path given as call rows, or why they are none.
  Result<std::vector<int32_t>> path(std::span<const int32_t> call_rows) const;

 private:
  std::vector<Entry> entries_;
  FunctionId function_;
};

}  // namespace espalier
