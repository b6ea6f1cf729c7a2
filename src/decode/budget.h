// How many rows a call verifies, and whether a drafter runs at all: what is gained at the price that time has in the long run.
//
// Price     tokens a millisecond over the last cycles, as a multiple of plain decoding; never below plain. A width gains the sum
//           of its nodes' reach and costs its call, growing, and at that price the time; every width is looked at, since curves
//           have steps.
// Clock     the curve's times follow the machine: the two rates (memory, arithmetic) that explain the last 64 calls with the least
//           weighted sum of errors, which is a weighted median where one of them bounds all; the curve's steps stay as ratios to
//           it, and are themselves corrected where they prove wrong. Without a measured curve widths in steps of four rows
//           are learnt by taking them, after two plain calls where the time of one row is not known either.
// Losses    a ledger of what drafting cost beyond plain decoding may reach a few calls, growing with the logarithm of the tokens:
//           a drafter that is never right is asked less and less often. What it gained before may be lost again, up to a few calls.
// Rests     where asking came to nothing, nobody is asked for 1, 3, 7 ... cycles, as long as asking would take more than a hundredth
//           of the time: on large models every cycle asks, on small ones the asking itself is what has to be saved. The drafter
//           rests by itself, longer, since it costs more.
// Nothing here changes a text. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/cost_curve.h"
#include "decode/grow_tree.h"
#include "espalier/status.h"

namespace espalier {

struct SpeculationMode {
  enum class Kind { automatic, off, chain, tree };
  Kind kind = Kind::automatic;
  int32_t count = 0;   // chain: drafted tokens; tree: rows of the call, the root included
  std::string notice;  // where the count that was asked for had to be clamped
  std::string text() const;      // "auto", "off", "chain:9", "tree:24"
  GrowLimits limits(int64_t sequences) const;  // of a call in which that many sequences draft
};
// auto | off | chain:N | tree:N. A count beyond what a call holds is clamped with a notice; less than 1 is refused.
Result<SpeculationMode> parse_speculation_mode(std::string_view text);

// The n that maximises (sum of the first n of reach) - price * ms[n]; the smallest of equal ones.
// ms has one more entry than reach: ms[0] is the call without drafts.
size_t choose_width(std::span<const float> reach, std::span<const double> ms, double price);

// A call as it would be without drafts.
struct CallShape {
  int32_t rows = 1;       // roots, and rows of prompts that share the call
  int32_t sequences = 1;  // that gain at least one token
  double context = 0;     // mean of the positions held before its rows
};

// What became of a cycle.
struct CycleReport {
  CallShape shape;
  int32_t nodes = 0;      // drafted rows
  int32_t tokens = 1;     // gained by all sequences together
  bool block = false;     // the drafter's block was run
  double block_ms = 0;    // that run
  double grow_ms = 0;     // asking sources, growing
  double verify_ms = 0;   // the call
  double commit_ms = 0;   // commit, and the drafter's context
  double host_ms = 0;     // the rest
  bool rested = false;    // nobody was asked
};

class Budget {
 public:
  // Requires: a curve with at least one band.
  Budget(SpeculationMode mode, CostCurve curve);

  const SpeculationMode& mode() const { return mode_; }
  // Whether the cycle that begins is left plain and nobody asked: its report says `rested`.
  bool rests() const { return all_.left > 0; }
  // Whether to run the drafter's block in the cycle that begins, if it does not rest.
  bool wants_block() const;
  // Grows as long as a wider call may pay, cuts to the width that pays most, and returns its nodes. `block`: one was run.
  size_t grow(TreeGrower& grower, const CallShape& shape, bool block);
  void observe(const CycleReport& cycle);

  // What is believed now.
  double predicted_ms(int32_t rows, double context) const;
  double speedup() const;  // tokens a millisecond over plain decoding, in the last cycles; at least 1

 private:
  // A call of the last 64, in logarithms: what memory and arithmetic take by the curve, and how much slower than it the call was.
  struct Timed {
    int32_t rows;
    double memory, arithmetic, slower;
  };
  // Correction of the curve's step at one width.
  struct Width {
    double log_ratio = 0, weight = 0;
  };
  // Cycles without asking: lengthened each time that asking came to nothing.
  struct Rest {
    int32_t length = 0, left = 0;
    void begin(double most);
    void end() { length = left = 0; }
    void pass() { left -= left > 0 ? 1 : 0; }
  };
  using Times = std::array<double, kDraftRowsMax>;

  Times curve_times(double context) const;
  Times believed_times(double context) const;
  double level(const Times& curve, int32_t rows) const;
  void guess_between(const Times& curve, std::span<const size_t> known, Times& times) const;
  void follow(int32_t rows, double context, double ms);
  void follow_rates(const Times& curve, int32_t rows, double slower);
  void fit_rates();
  void learn_width(const CostSample& call);
  bool knows_plain() const;
  void settle_accounts(const CycleReport& cycle);
  void plan_rests(const CycleReport& cycle);
  double allowance(double start, double growth) const;
  double worth() const;
  size_t grow_to_best(TreeGrower& grower, const CallShape& shape);

  SpeculationMode mode_;
  CostCurve curve_;
  std::vector<Timed> calls_;  // ring of the last kCalls
  size_t next_call_ = 0;
  int64_t calls_seen_ = 0;
  double memory_ = 1, arithmetic_ = 1;  // factors on the curve's times
  std::vector<CostSample> waiting_;     // calls that widths_ has not learnt from yet
  std::array<Width, kDraftRowsMax> widths_{};
  double tokens_ = 0, plain_calls_ = 0;   // of the last cycles, fading: tokens a sequence, time in plain calls
  double expected_ = 0, accepted_ = 0;    // of the last cycles, fading: drafted tokens
  double tree_expects_ = 0;               // of the tree that was grown last
  double node_ms_ = 0, overhead_ms_ = 0;  // growing a node; commit and host
  double tokens_seen_ = 0;                // a sequence
  double debt_with_block_ = 0, debt_without_block_ = 0;  // plain calls lost and not brought back; below 0: gained
  Rest all_, block_;
  CostSample rested_{0, 0, 0};  // the last call of a rest
};

}  // namespace espalier
