// State of the reference unit: everything in fp32, one vector for each state of the program.
#pragma once

#include <map>
#include <vector>

#include "units/pending_rows.h"
#include "units/unit.h"

namespace espalier::reference {

struct KvSlot {
  std::vector<float> k, v;                  // held: (length, nkv*hd)
  std::vector<float> pending_k, pending_v;  // (pending rows, nkv*hd); empty: the call's segments have not reached it
};
struct FrameSlot {
  std::vector<float> held;     // (count, width), oldest first, zero before the start
  std::vector<float> pending;  // (pending rows, width)
};

class ReferenceState : public State {
 public:
  explicit ReferenceState(const Program& program);

  int32_t length() const override { return static_cast<int32_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const override { return tokens_; }
  int32_t pending() const override { return rows.size(); }
  Status commit(std::span<const int32_t> call_rows) override;
  std::unique_ptr<State> fork() const override;
  Status restore(const State& other) override;
  NeutralState export_neutral() const override;
  Status import_neutral(const NeutralState& neutral, std::string* note) override;

  void drop_pending();
  const Program& program() const { return *program_; }

  PendingRows rows;
  std::vector<KvSlot> kv;         // by StateId; empty for frames
  std::vector<FrameSlot> frames;  // by StateId; empty for kv

 private:
  const Program* program_;
  uint64_t hash_;
  std::vector<int32_t> tokens_;
};

}  // namespace espalier::reference
