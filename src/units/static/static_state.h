// State of a static unit: K/V columns and frames in the layout of the lowered functions, and what is not written yet.
//
//   held rows = written (columns of K/V, frames behind them) + unwritten (accepted; fed again in the next window)
//
// Behind a call the state also knows the path that its windows wrote, and the frames at the ends of its parts; commit keeps
// what of it the accepted path shares.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lower/lowered.h"
#include "units/pending_rows.h"
#include "units/unit.h"

namespace espalier::static_unit {

using FrameSet = std::vector<std::vector<float>>;  // by lowered state, (channels, frame_count of the program); empty for K/V

// A row that is accepted and not written, or that a call runs.
struct StateRow {
  int32_t token, position;
  int32_t parent;    // an earlier row of the same list, or kState
  int32_t call_row;  // kNone: it was accepted before the call
  std::vector<float> features;  // the function's inputs side by side
};

// What states of one model share.
struct StateShape {
  const Program* program = nullptr;
  const LoweredProgram* lowered = nullptr;
  uint64_t hash = 0;
  std::vector<int32_t> buckets;  // ascending
  bool rounds = false;           // values are fp16
  bool any_base = false;         // a sequence can stand on any part of a written path: no frames, no blocks
  int32_t columns_max = 0;       // rows that a state can hold
  // Runs windows until nothing is unwritten.
  std::function<Status(class StaticState&)> flush;

  // Smallest bucket of at least `columns`; the largest where none is.
  int32_t bucket_for(int32_t columns) const;
};

class StaticState : public State {
 public:
  explicit StaticState(const StateShape& shape);

  int32_t length() const override { return static_cast<int32_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const override { return tokens_; }
  int32_t pending() const override { return rows.size(); }
  Status commit(std::span<const int32_t> call_rows) override;
  std::unique_ptr<State> fork() const override;
  Status restore(const State& other) override;
  NeutralState export_neutral() const override;
  Status import_neutral(const NeutralState& neutral, std::string* note) override;

  const StateShape& shape() const { return *shape_; }
  int32_t written() const { return written_; }
  std::span<const StateRow> unwritten() const { return unwritten_; }
  Role unwritten_role() const { return unwritten_role_; }

  // A call begins: keeps what is written of the unwritten rows, and takes its rows. `role_keeps`: its rows can be committed.
  void begin(PendingRows&& pending, std::vector<StateRow>&& call_rows, Role role, bool role_keeps);
  // Rows of the call, unwritten ones first.
  std::span<const StateRow> call_rows() const { return call_rows_; }
  // K/V of `columns` columns, by lowered state; frames are not in it.
  void resize_columns(int32_t columns);
  int32_t columns() const { return columns_; }
  std::vector<std::vector<float>>& kv() { return kv_; }
  // Frames behind the first `base` rows of the path that this call has written.
  const FrameSet& frames_at(int32_t base) const;
  // A window wrote `path` (rows of call_rows()) behind `base`.
  void advance(int32_t base, std::span<const int32_t> path, FrameSet&& frames);
  // Drops what is pending, keeping what of the unwritten rows was written.
  void settle() { keep({}); }

 private:
  struct Base {
    int32_t length;
    FrameSet frames;
  };
  // `path`: rows of call_rows() behind the unwritten ones.
  void keep(const std::vector<int32_t>& path);
  void export_kv(NeutralState& out, const StateDecl& decl, size_t lowered) const;

 public:
  PendingRows rows;

 private:
  const StateShape* shape_;
  std::vector<int32_t> tokens_;
  int32_t written_ = 0, columns_ = 0;
  std::vector<std::vector<float>> kv_;  // by lowered state, (channels, columns_); empty for frames
  FrameSet frames_;
  std::vector<StateRow> unwritten_;
  Role unwritten_role_ = Role::step;
  bool keeps_ = true;
  std::vector<StateRow> call_rows_;
  std::vector<int32_t> path_;  // rows of call_rows_ that are in columns written_, + 1, ...
  std::vector<Base> bases_;    // ascending; where there are no frames any length is a base
};

}  // namespace espalier::static_unit
