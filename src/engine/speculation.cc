#include "engine/speculation.h"

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "engine/markov_finder.h"

namespace espalier {
namespace {

constexpr int64_t kWatchedDrafts = 200, kWatchedStreak = 1000;
constexpr double kDoubtShare = 0.1;
constexpr size_t kUnreadBytes = size_t{16} << 20;  // of features: 400 rows at five taps of 2,048, 5,400 at three of 256
constexpr size_t kReadRows = 512;                  // rows of one call
constexpr size_t kDirectMin = 64;
constexpr uint32_t kDrafterBit = 2;  // of DraftNode::sources: n-grams come first

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

SpeculationReport report_of(const SpeculationStats& stats, const std::string& mode) {
  SpeculationReport r;
  r.mode = mode;
  r.cycles = stats.cycles;
  r.rows = stats.rows;
  r.tokens = stats.tokens;
  r.accepted = stats.accepted;
  for (const SpeculationStats::Tally& t : stats.by_depth) r.by_depth.push_back({t.offered, t.accepted});
  for (const SpeculationStats::Source& s : stats.by_source) r.by_source.push_back({s.name, s.drafted, s.reached.offered, s.reached.accepted});
  r.draft_ms = stats.ms.draft;
  r.verify_ms = stats.ms.verify;
  r.commit_ms = stats.ms.commit;
  r.host_ms = stats.ms.host;
  return r;
}

}  // namespace

SharedDrafting::SharedDrafting(std::unique_ptr<Drafter> drafter, CostCurve curve, std::mutex& model_turns)
    : drafter_(std::move(drafter)), curve_(std::move(curve)), model_turns_(model_turns), ngram_(NgramSource::calibration()),
      greedy_(DsparkSource::calibration(true)), sampled_(DsparkSource::calibration(false)) {
  if (drafter_ != nullptr) drafter_->head.use(markov_finder(*drafter_->model, model_turns_));
}

Budget& SharedDrafting::budget(const SpeculationMode& mode) {
  auto& budget = budgets_[mode.text()];
  if (!budget) budget = std::make_unique<Budget>(mode, curve_);
  return *budget;
}

void SharedDrafting::watch(const DraftTree& tree, const Acceptance& kept, const Calibration& learnt, const Platt& start) {
  const auto first = std::find_if(tree.nodes.begin(), tree.nodes.end(),
                                  [&](const DraftNode& n) { return n.parent == kRoot && (n.sources & kDrafterBit) != 0; });
  if (first == tree.nodes.end() || doubted_) return;
  const bool agreed = !kept.path.empty() && kept.path[0] == first - tree.nodes.begin();
  streak_ = agreed ? streak_ + 1 : 0;
  if (first->sources == kDrafterBit) {
    ++watched_;
    agreed_ += agreed;
    // What the drafter promised before anything was learnt of it: what is learnt would excuse it.
    const Platt now = learnt.platts()[0];
    expected_ += static_cast<double>(apply(start, (logit_of(first->reach) - now.b) / now.a));
  }
  char text[300] = "";
  if (streak_ == kWatchedStreak)
    snprintf(text, sizeof text, "each of the drafter's last %lld first tokens was the model's own: it may read what it should not; check its tap layers",
             static_cast<long long>(streak_));
  if (watched_ == kWatchedDrafts) {
    if (static_cast<double>(agreed_) < kDoubtShare * expected_)
      snprintf(text, sizeof text,
               "the drafter's first token was right in %lld of %lld drafts, and %.0f were expected: it may belong to another model, or its tap layers "
               "are wrong",
               static_cast<long long>(agreed_), static_cast<long long>(watched_), expected_);
    watched_ = agreed_ = 0;
    expected_ = 0;
  }
  if (text[0] == 0) return;
  doubted_ = true;
  doubt_ = drafter_->path + ": " + text;
}

Speculation::Speculation(SharedDrafting& shared, SpeculationMode mode) : shared_(shared), mode_(std::move(mode)) {
  block_out_.taps = {{"hidden", {}}};
}

std::span<const std::string> Speculation::taps() const {
  if (shared_.drafter_ == nullptr) return {};
  return shared_.drafter_->taps;
}

bool Speculation::reads_taps(SequenceId id) const {
  const auto at = sequences_.find(id);
  return at != sequences_.end() && at->second.drafter_state != nullptr;
}

void Speculation::Sequence::warn(std::string sentence) {
  if (std::find(warnings.begin(), warnings.end(), sentence) == warnings.end()) warnings.push_back(std::move(sentence));
}

void Speculation::Sequence::use_sources() {
  std::vector<DraftSource*> list = {ngram.get()};
  if (dspark) list.push_back(dspark.get());
  use_sources(std::move(list));
}

void Speculation::Sequence::use_sources(std::vector<DraftSource*> list) {
  sources = std::move(list);
  names.clear();
  for (const DraftSource* s : sources) names.push_back(s->name());
}

void Speculation::follow(SequenceId id, const Sampling& rules, const State& target_state, State* drafter_state) {
  Sequence s;
  s.ngram = std::make_unique<NgramSource>(shared_.ngram_);
  if (drafter_state != nullptr && shared_.drafter_ != nullptr) {
    const std::span<const int32_t> held = target_state.tokens(), read = drafter_state->tokens();
    if (std::equal(held.begin(), held.end(), read.begin(), read.end())) {
      s.drafter_state = drafter_state;
      s.greedy = rules.greedy();
      s.dspark = std::make_unique<DsparkSource>(shared_.drafter_->head, rules.greedy() ? shared_.greedy_ : shared_.sampled_, rules);
    } else {
      s.warn("the drafter has not read all of this text (speculation was off for a part of it), so it does not draft");
    }
  }
  s.use_sources();
  sequences_[id] = std::move(s);
}

void Speculation::catch_up(SequenceId id) {
  Sequence* const one[] = {&sequences_.at(id)};
  read_rows(one);
}

SpeculationReport Speculation::close(SequenceId id) {
  const SpeculationReport report = report_of(sequences_.at(id).stats, mode_.text());
  sequences_.erase(id);
  return report;
}

std::vector<std::string> Speculation::take_warnings(SequenceId id) {
  std::vector<std::string> out = std::move(sequences_.at(id).warnings);
  const std::lock_guard<std::mutex> turn(shared_.turn_);
  if (!shared_.doubt_.empty()) out.push_back(std::move(shared_.doubt_));
  shared_.doubt_.clear();
  return out;
}

void Speculation::leave_drafter(Sequence& s, const std::string& why) {
  s.warn("the drafter was left out: " + why);
  s.dspark.reset();
  s.drafter_state = nullptr;
  s.unread.clear();
  s.unread_features.clear();
  s.use_sources();
}

// One call for all that have something unread.
void Speculation::read_rows(std::span<Sequence* const> sequences) {
  std::vector<DrafterRows> rows;
  std::vector<Sequence*> reading;
  for (Sequence* s : sequences) {
    if (s->drafter_state == nullptr || s->unread.empty()) continue;
    rows.push_back({s->drafter_state, s->unread, s->unread_features.data()});
    reading.push_back(s);
  }
  read_rows(rows, reading);
  for (Sequence* s : reading) {
    s->unread.clear();
    s->unread_features.clear();
  }
}

void Speculation::read_rows(std::span<const DrafterRows> rows, std::span<Sequence* const> reading) {
  const size_t width = shared_.drafter_ == nullptr ? 0 : shared_.drafter_->taps.size() * static_cast<size_t>(shared_.drafter_->plan.model.program.hidden);
  std::vector<DrafterRows> left(rows.begin(), rows.end());
  for (;;) {
    std::vector<DrafterRows> call;
    size_t room = kReadRows;
    for (DrafterRows& r : left) {
      const size_t n = std::min(room, r.tokens.size());
      if (n == 0) continue;
      call.push_back({r.state, r.tokens.first(n), r.features});
      r.tokens = r.tokens.subspan(n);
      r.features += n * width;
      room -= n;
    }
    if (call.empty()) return;
    const std::lock_guard<std::mutex> turn(shared_.model_turns_);
    const Status ran = run_context(*shared_.drafter_, call);
    if (ran.ok()) continue;
    for (Sequence* s : reading) leave_drafter(*s, ran.message());
    return;
  }
}

// Whether a block was run.
bool Speculation::run_drafter(std::span<const DraftAsk> asked) {
  std::vector<Sequence*> drafting;
  for (const DraftAsk& a : asked) {
    Sequence& s = sequences_.at(a.sequence);
    if (s.dspark && a.depth_max >= 1) drafting.push_back(&s);
  }
  read_rows(drafting);
  std::erase_if(drafting, [](const Sequence* s) { return !s->dspark; });
  if (drafting.empty()) return false;
  std::vector<DrafterRows> roots;
  for (const Sequence* s : drafting) roots.push_back({s->drafter_state, asked[s->place].text.last(1)});
  Status ran;
  {
    const std::lock_guard<std::mutex> turn(shared_.model_turns_);
    ran = run_block(*shared_.drafter_, roots, block_out_);
  }
  if (!ran.ok()) {
    for (Sequence* s : drafting) leave_drafter(*s, ran.message());
    return false;
  }
  const size_t depths = static_cast<size_t>(shared_.drafter_->plan.block_size);
  const std::span<const float> logits(block_out_.logits), lse(block_out_.lse), hidden(block_out_.taps[0].data);
  const size_t l = logits.size() / drafting.size(), h = hidden.size() / drafting.size();
  for (size_t i = 0; i < drafting.size(); ++i)
    drafting[i]->dspark->set_block({.depths = static_cast<int32_t>(depths),
                                    .logits = logits.subspan(i * l, l),
                                    .lse = lse.subspan(i * depths, depths),
                                    .hidden = hidden.subspan(i * h, h)});
  return true;
}

void Speculation::draft(std::span<const DraftAsk> asked, int32_t other_rows, std::span<DraftTree> trees) {
  const std::lock_guard<std::mutex> turn(shared_.turn_);
  Budget& budget = shared_.budget(mode_);
  cycle_ = {};
  cycle_.shape.rows = static_cast<int32_t>(asked.size()) + other_rows;
  cycle_.shape.sequences = static_cast<int32_t>(asked.size());
  asked_.clear();
  gained_ = 0;
  for (const DraftAsk& a : asked) {
    Sequence& s = sequences_.at(a.sequence);
    s.place = asked_.size();
    asked_.push_back(a.sequence);
    cycle_.shape.context += static_cast<double>(a.text.size() - 1) / static_cast<double>(asked.size());
  }
  grower_.reset();
  if ((cycle_.rested = budget.rests())) return;
  for (const DraftAsk& a : asked)
    for (DraftSource* source : sequences_.at(a.sequence).sources) source->begin(a.text);
  const int64_t t0 = now_ns();
  if (shared_.drafter_ != nullptr && budget.wants_block()) cycle_.block = run_drafter(asked);
  const int64_t t1 = now_ns();
  cycle_.block_ms = ms(t1 - t0);

  std::vector<DraftSequence> places;
  for (const DraftAsk& a : asked) places.push_back({sequences_.at(a.sequence).sources, a.depth_max});
  grower_ = std::make_unique<TreeGrower>(std::move(places), mode_.limits(static_cast<int64_t>(asked.size())));
  budget.grow(*grower_, cycle_.shape, cycle_.block);
  for (size_t i = 0; i < asked.size(); ++i) trees[i] = grower_->tree(i);
  cycle_.grow_ms = ms(now_ns() - t1);
}

void Speculation::settle(SequenceId id, const DraftTree& tree, const Acceptance& kept) {
  Sequence& s = sequences_.at(id);
  if (s.place >= asked_.size() || asked_[s.place] != id) return;  // its prompt has just ended
  gained_ += static_cast<int32_t>(kept.tokens.size());
  cycle_.nodes += static_cast<int32_t>(tree.nodes.size());
  s.stats.add(tree, kept, s.names);
  if (cycle_.rested || tree.nodes.size() != grower_->tree(s.place).nodes.size()) return;  // another tree was verified: nothing to learn
  const std::lock_guard<std::mutex> turn(shared_.turn_);
  if (s.dspark) shared_.watch(tree, kept, s.greedy ? shared_.greedy_ : shared_.sampled_, s.greedy ? shared_.greedy_start_ : shared_.sampled_start_);
  grower_->learn(s.place, kept);
}

void Speculation::keep(std::span<const KeptRows> rows) {
  std::vector<DrafterRows> many;
  std::vector<Sequence*> reading;
  const size_t width = shared_.drafter_->taps.size() * static_cast<size_t>(shared_.drafter_->plan.model.program.hidden);
  for (const KeptRows& k : rows) {
    Sequence& s = sequences_.at(k.sequence);
    const bool direct = s.unread.empty() && k.tokens.size() >= kDirectMin;  // a chunk of prompt: read where it lies
    if (!direct) {
      s.unread.insert(s.unread.end(), k.tokens.begin(), k.tokens.end());
      s.unread_features.insert(s.unread_features.end(), k.features, k.features + k.tokens.size() * width);
    }
    if (!direct && s.unread_features.size() * sizeof(float) < kUnreadBytes) continue;
    many.push_back(direct ? DrafterRows{s.drafter_state, k.tokens, k.features} : DrafterRows{s.drafter_state, s.unread, s.unread_features.data()});
    reading.push_back(&s);
  }
  read_rows(many, reading);
  for (Sequence* s : reading) {
    s->unread.clear();
    s->unread_features.clear();
  }
}

void Speculation::abandon() {
  asked_.clear();
  grower_.reset();
}

void Speculation::observe(const StepReport& report) {
  if (asked_.empty()) return;
  cycle_.tokens = gained_;
  cycle_.verify_ms = ms(report.call.t1_ns - report.call.t0_ns);
  cycle_.commit_ms = ms(report.commit_ns);
  cycle_.host_ms = std::max(0.0, ms(report.step_ns) - ms(report.draft_ns) - cycle_.verify_ms - cycle_.commit_ms);
  const double share = 1.0 / static_cast<double>(asked_.size());
  for (const SequenceId id : asked_) {
    SpeculationStats::Milliseconds& total = sequences_.at(id).stats.ms;
    total.draft += share * ms(report.draft_ns);
    total.verify += share * cycle_.verify_ms;
    total.commit += share * cycle_.commit_ms;
    total.host += share * cycle_.host_ms;
  }
  for (const SequenceId id : asked_)
    if (!report.drafts_failure.empty()) sequences_.at(id).warn("a call with drafted tokens failed, and was run without them: " + report.drafts_failure);
  abandon();
  if (!report.drafts_failure.empty()) return;  // two calls: no time of one
  const std::lock_guard<std::mutex> turn(shared_.turn_);
  shared_.budget(mode_).observe(cycle_);
}

Result<CostCurve> measure_ceilings(Model& model, uint64_t weight_bytes) {
  ESPALIER_ASSIGN(const std::unique_ptr<State> state, model.make_state());
  State* const states[] = {state.get()};
  Outputs out;
  const auto time = [&](int32_t n) -> Result<double> {
    std::vector<Row> rows;
    for (int32_t i = 0; i < n; ++i) rows.push_back({0, 0, i, i == 0 ? kState : i - 1, kWantArgmax});
    ESPALIER_ASSIGN(const CallStats stats, model.run({{Role::step, kNone}, rows, states, {}, 0, &out}));
    return std::max(ms(stats.t1_ns - stats.t0_ns), 1e-3);
  };
  ESPALIER_ASSIGN(const double first, time(1));
  ESPALIER_ASSIGN(const double second, time(1));
  const double one = std::min(first, second);
  const int32_t wide = one < 100 ? 32 : 8;
  ESPALIER_ASSIGN(const double many, time(wide));
  Ceilings c;
  c.weight_bytes = static_cast<double>(weight_bytes);
  c.bytes_per_ms = c.weight_bytes / one;
  c.rows_per_ms = wide / std::max(many, one);
  for (const StateDecl& s : model.program().states)
    if (s.kind == StateDecl::Kind::kv) c.position_bytes += 4.0 * s.n_kv_heads * s.head_dim;
  CostCurve curve = modelled_curve(c);
  curve.seen = {1, wide};
  return curve;
}

CostCurve linear_curve() { return modelled_curve({.weight_bytes = 1, .bytes_per_ms = 1, .rows_per_ms = 1}); }

}  // namespace espalier
