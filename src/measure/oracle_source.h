// A source for benches that knows how the text goes on, and lets on as much as a traced drafter did.
//
// Trace        {"from": "...", "hits": [[0.72, 0.09, ...], ...]}: at depth d behind a right parent the true token was the first,
//              second ... proposal in that share of the cycles. `bench --draft --trace FILE` writes one.
// Proposals    as many as the trace has ranks, with the traced shares as probabilities. On the true path one of them is the true
//              token, at a rank that is drawn with those shares by (place of the text, depth), or none is; the others are wrong.
#pragma once

#include <string>
#include <vector>

#include "base/value.h"
#include "decode/draft_source.h"
#include "espalier/status.h"

namespace espalier {

struct OracleTrace {
  std::string from;
  std::vector<std::vector<double>> hits;  // (depth, rank): shares, falling along the ranks; each depth sums to at most 1
};

// Refused: anything but 1 to 63 depths of 1 to 32 shares from 0 to 1 that sum to at most 1. `where` names the file.
Result<OracleTrace> read_trace(const std::string& text, const std::string& where);
Value trace_json(const OracleTrace& trace);

class OracleSource final : public DraftSource {
 public:
  // `truth`: the text as far as it is known, borrowed; it may grow between cycles. `beside` (may be null, borrowed) is asked too, for the time that it takes.
  OracleSource(const OracleTrace& trace, const std::vector<int32_t>& truth, int32_t vocabulary, DraftSource* beside);

  std::string_view name() const override { return "oracle"; }
  void begin(std::span<const int32_t> text) override;
  void propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) override;
  void learn(const DraftPlace& place, int32_t token, float probability, bool accepted) override;

 private:
  const OracleTrace& trace_;
  const std::vector<int32_t>& truth_;
  int32_t vocabulary_;
  DraftSource* beside_;
  size_t length_ = 0;
  std::vector<Proposal> discarded_;
};

// Forwards to a source and counts at which rank its proposals were right.
class TracingSource final : public DraftSource {
 public:
  struct Counts {
    std::vector<int64_t> places;             // by depth: those whose parent was right
    std::vector<std::vector<int64_t>> hits;  // by depth and rank
    OracleTrace trace(std::string from) const;  // ranks that never hit are left out at the end of a depth
  };
  TracingSource(DraftSource& inner, Counts& counts) : inner_(inner), counts_(counts) {}

  std::string_view name() const override { return inner_.name(); }
  void begin(std::span<const int32_t> text) override;
  void propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) override;
  void learn(const DraftPlace& place, int32_t token, float probability, bool accepted) override;

 private:
  DraftSource& inner_;
  Counts& counts_;
  std::vector<std::vector<int32_t>> offers_;  // by node + 1
};

}  // namespace espalier
