// Speculation as an engine does it: n-grams and, where there is one, the drafter in one heap; the budget decides how much.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "decode/budget.h"
#include "decode/dspark_source.h"
#include "decode/ngram_source.h"
#include "decode/speculation_stats.h"
#include "engine/decoder.h"
#include "engine/drafter.h"
#include "espalier/request.h"

namespace espalier {

// What the requests of an engine share: what was learnt of this machine and of the drafter.
class SharedDrafting {
 public:
  // `drafter` may be null; `model_turns`: held while a model of the engine's unit runs.
  SharedDrafting(std::unique_ptr<Drafter> drafter, CostCurve curve, std::mutex& model_turns);

  Drafter* drafter() { return drafter_.get(); }
  // What has been learnt of the sources, for reports.
  struct Learnt {
    const Calibration &ngram, &greedy, &sampled;
  };
  Learnt learnt() const { return {ngram_, greedy_, sampled_}; }
  // From now on probabilities are what the sources say, and nothing is learnt of them. Not while a request runs.
  void leave_uncalibrated() { ngram_ = greedy_ = sampled_ = Calibration(std::vector<Platt>(1), 0); }

 private:
  friend class Speculation;
  Budget& budget(const SpeculationMode& mode);
  void watch(const DraftTree& tree, const Acceptance& kept, const Calibration& learnt, const Platt& start);

  std::unique_ptr<Drafter> drafter_;
  CostCurve curve_;
  std::mutex& model_turns_;
  std::mutex turn_;  // of everything here; taken before model_turns_
  Calibration ngram_, greedy_, sampled_;
  Platt greedy_start_, sampled_start_;  // of depth 1
  std::map<std::string, std::unique_ptr<Budget>> budgets_;  // by the mode's text
  // The drafter's first proposal of each cycle: everything right, or next to nothing, cannot be.
  int64_t watched_ = 0, agreed_ = 0, streak_ = 0;
  double expected_ = 0;
  bool doubted_ = false;  // said once
  std::string doubt_;     // until a request takes it along
};

// The drafting of one decoder. Tokens are the target's whatever happens here: what fails is left out, with a warning.
class Speculation final : public Drafting {
 public:
  // `shared` is borrowed. Mode off: nothing is drafted (no Drafting is needed then).
  Speculation(SharedDrafting& shared, SpeculationMode mode);

  // A sequence that was opened in the decoder. `drafter_state` is borrowed and may be null: n-grams alone. It must hold the
  // tokens that the target's state holds; one that doesn't is left out with a warning.
  void follow(SequenceId id, const Sampling& rules, const State& target_state, State* drafter_state);
  // Rows that the drafter has not read yet are read: its state holds what the target's does.
  void catch_up(SequenceId id);
  // What was done for a sequence, and it is forgotten. A drafter's state that is used again has to be caught up before.
  SpeculationReport close(SequenceId id);
  std::vector<std::string> take_warnings(SequenceId id);

  // For benches and tests: what a sequence's cycles did so far, who proposes for it, and that others propose (borrowed; the
  // drafter's calls are made all the same).
  const SpeculationStats& stats(SequenceId id) const { return sequences_.at(id).stats; }
  const std::vector<DraftSource*>& sources(SequenceId id) const { return sequences_.at(id).sources; }
  void use_sources(SequenceId id, std::vector<DraftSource*> sources) { sequences_.at(id).use_sources(std::move(sources)); }

  std::span<const std::string> taps() const override;
  bool follows(SequenceId id) const override { return sequences_.count(id) > 0; }
  bool reads_taps(SequenceId id) const override;
  void draft(std::span<const DraftAsk> asked, int32_t other_rows, std::span<DraftTree> trees) override;
  void settle(SequenceId id, const DraftTree& tree, const Acceptance& kept) override;
  void keep(std::span<const KeptRows> rows) override;
  void abandon() override;
  void observe(const StepReport& report) override;

 private:
  struct Sequence {
    std::unique_ptr<NgramSource> ngram;
    std::unique_ptr<DsparkSource> dspark;  // null without a drafter's state
    State* drafter_state = nullptr;
    bool greedy = false;
    // Kept rows that the drafter has still to read: it reads many as fast as one, and none before it drafts.
    std::vector<int32_t> unread;
    std::vector<float> unread_features;
    std::vector<DraftSource*> sources;
    std::vector<std::string_view> names;
    SpeculationStats stats;
    std::vector<std::string> warnings;
    size_t place = 0;  // in the current cycle
    void use_sources();
    void use_sources(std::vector<DraftSource*> list);
    void warn(std::string sentence);  // once
  };
  bool run_drafter(std::span<const DraftAsk> asked);
  void read_rows(std::span<Sequence* const> sequences);
  void read_rows(std::span<const DrafterRows> rows, std::span<Sequence* const> reading);
  void leave_drafter(Sequence& s, const std::string& why);

  SharedDrafting& shared_;
  SpeculationMode mode_;
  std::map<SequenceId, Sequence> sequences_;
  Outputs block_out_;
  std::unique_ptr<TreeGrower> grower_;  // of the current cycle
  std::vector<SequenceId> asked_;
  CycleReport cycle_;
  int32_t gained_ = 0;
};

// T(rows) from the two ceilings, by a few calls of the model on a state of its own; about 0.3 s at the most on models whose
// row takes less than 0.1 s.
Result<CostCurve> measure_ceilings(Model& model, uint64_t weight_bytes);
// For units that are not made for speed: a row costs what a row costs, so nothing but a sure draft pays.
CostCurve linear_curve();

}  // namespace espalier
