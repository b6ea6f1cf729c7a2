// State of the CPU unit: K/V in reference-counted pages of 128 positions, frames of the short convolutions in fp32.
//
// A page holds all layers' K/V of its positions: for each kv state, n_kv_heads blocks (kv_page.h). Forks share pages; a page
// that is shared is copied before it is written, so growth and forks cost one page at the most.
#pragma once

#include <memory>
#include <vector>

#include "kernels/attention/kv_page.h"
#include "units/pending_rows.h"
#include "units/unit.h"

namespace espalier::cpu {

// Aligned memory, not initialised, that only grows.
class Buffer {
 public:
  // Contents are lost when it grows. False when the memory is refused.
  bool reserve(size_t bytes);
  std::byte* bytes() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Where each kv state's blocks lie in a page, and each frames state's rows in a frame buffer. One for a model.
struct StateLayout {
  KvType kv_type;
  std::vector<KvLayout> kv;        // by StateId (frames: unused)
  std::vector<size_t> offset;      // kv: byte offset in a page; frames: float offset of the state's (rows, width) per row
  size_t page_bytes = 0;
  size_t frame_floats = 0;         // of all frames states, for one row
};
StateLayout state_layout(const Program& program, KvType kv_type);

using Page = Buffer;
using PagePtr = std::shared_ptr<Page>;

// The u rows of a call, for all frames states: state s at frame_floats-offset * rows, (rows of the call, width).
struct CallFrames {
  Buffer memory;
  size_t rows = 0;
};

class CpuState : public State {
 public:
  CpuState(const Program& program, const StateLayout& layout);

  int32_t length() const override { return static_cast<int32_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const override { return tokens_; }
  int32_t pending() const override { return rows.size(); }
  Status commit(std::span<const int32_t> call_rows) override;
  std::unique_ptr<State> fork() const override;
  Status restore(const State& other) override;
  NeutralState export_neutral() const override;
  Status import_neutral(const NeutralState& neutral, std::string* note) override;

  const Program& program() const { return *program_; }
  // Before a call whose rows are new: pages for its slots.
  Status prepare(size_t n_rows, std::shared_ptr<CallFrames> frames);

  PendingRows rows;
  std::vector<std::byte*> held_pages;   // pointers of the pages, for kernels
  std::vector<std::byte*> fresh_pages;  // slots of the pending rows
  std::vector<std::vector<float>> frames;  // by StateId: (count, width), oldest first
  std::vector<bool> touched;               // by StateId: the pending rows have gone through it
  std::shared_ptr<CallFrames> call_frames;

 private:
  Status own_page(size_t index);  // grows or un-shares
  void commit_frames(size_t state, std::span<const int32_t> path);
  void copy_from(const CpuState& other);
  void refresh_pointers();

  const Program* program_;
  const StateLayout* layout_;
  uint64_t hash_;
  std::vector<int32_t> tokens_;
  std::vector<bool> filled_;  // by StateId: held rows are really there (segments may have skipped it)
  std::vector<PagePtr> pages_, fresh_;
};

}  // namespace espalier::cpu
