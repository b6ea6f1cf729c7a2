#include "decode/budget.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "kernels/math/precise.h"

namespace espalier {
namespace {

constexpr size_t kCalls = 64;
constexpr double kRecency = 0.9;         // weight of a call against the next one
constexpr int32_t kBinEnds[] = {1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, kDraftRowsMax};  // widths told apart
constexpr size_t kLag = 7;               // calls until a median with these weights turns
constexpr double kPriceMemory = 1.0 / 32;  // share of the newest cycle in the price
constexpr double kGainMemory = 1.0 / 64;
constexpr double kGainPrior = 8;         // drafted tokens that reach counts as right from the start
constexpr double kStepPrior = 16;        // calls that a step of a measured curve counts as
constexpr int64_t kPlainFirst = 2;       // calls without drafts where the time of one row is not known
constexpr double kWidthMemory = 64;
constexpr double kNever = 1e12;         // ms
constexpr double kAllowanceStart = 2, kAllowanceGrowth = 1.25;  // plain calls that drafting with a block may lose
constexpr double kCheapStart = 0.5, kCheapGrowth = 0.35;       // and without one
constexpr double kAllowanceShare = 0.0005;                      // of all tokens, on top
constexpr double kCredit = 4;            // plain calls that were gained and may be lost again
constexpr double kRestShare = 0.01;      // of the time: what asking in vain may take
constexpr double kAskingMs = 0.01;       // of asking, beside what is reported: bookkeeping
constexpr double kRestMost = 64, kBlockRestMost = 256;  // cycles
constexpr double kOutlier = 2;           // a call is not charged more than this times what was predicted

double weighted_median(std::vector<std::pair<double, double>> values) {
  std::sort(values.begin(), values.end());
  double total = 0, sum = 0;
  for (const auto& [value, weight] : values) total += weight;
  for (const auto& [value, weight] : values)
    if ((sum += weight) >= 0.5 * total) return value;
  return values.back().first;
}

double log2_of(double x) { return precise_log(x) / precise_log(2.0); }

}  // namespace

std::string SpeculationMode::text() const {
  switch (kind) {
    case Kind::automatic: return "auto";
    case Kind::off: return "off";
    case Kind::chain: return "chain:" + std::to_string(count);
    case Kind::tree: return "tree:" + std::to_string(count);
  }
  return "off";
}

GrowLimits SpeculationMode::limits(int64_t sequences) const {
  sequences = std::clamp<int64_t>(sequences, 0, kDraftRowsMax);
  const int64_t room = kDraftRowsMax - sequences;
  switch (kind) {
    case Kind::automatic: return {room, kDraftDepthMax, kDraftChildrenMax};
    case Kind::off: return {0, 0, 1};
    case Kind::chain: return {std::min(room, count * sequences), count, 1};
    case Kind::tree: return {std::min(room, (count - int64_t{1}) * sequences), kDraftDepthMax, kDraftChildrenMax};
  }
  return {0, 0, 1};
}

Result<SpeculationMode> parse_speculation_mode(std::string_view text) {
  using Kind = SpeculationMode::Kind;
  if (text == "auto") return SpeculationMode{};
  if (text == "off") return SpeculationMode{Kind::off, 0, {}};
  const bool chain = text.starts_with("chain:"), tree = text.starts_with("tree:");
  const std::string said = "speculate: \"" + std::string(text.substr(0, 40)) + "\"";
  if (!chain && !tree) return invalid(said + " is none of auto, off, chain:N and tree:N", "speculate");
  const std::string_view digits = text.substr(text.find(':') + 1);
  int64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  const bool number = !digits.empty() && end == digits.data() + digits.size();
  if (!number || (error != std::errc{} && error != std::errc::result_out_of_range))
    return invalid(said + ": expected a whole number behind the colon", "speculate");
  if (error == std::errc::result_out_of_range) count = digits.front() == '-' ? INT64_MIN : INT64_MAX;
  if (count < 1) return invalid(said + ": expected at least 1; \"off\" decodes without drafts", "speculate");
  SpeculationMode mode{chain ? Kind::chain : Kind::tree, 0, {}};
  const int64_t most = chain ? kDraftNodesMax : kDraftRowsMax;
  mode.count = static_cast<int32_t>(std::min(count, most));
  if (count > most)
    mode.notice = said + ": " + (chain ? "a chain holds at most " + std::to_string(most) + " drafted tokens"
                                       : "a tree holds at most " + std::to_string(most) + " rows") + ", taken as " + mode.text();
  return mode;
}

size_t choose_width(std::span<const float> reach, std::span<const double> ms, double price) {
  ESP_CHECK(ms.size() == reach.size() + 1);
  size_t best = 0;
  double gained = 0, best_value = -price * ms[0];
  for (size_t n = 1; n < ms.size(); ++n) {
    gained += static_cast<double>(reach[n - 1]);
    const double value = gained - price * ms[n];
    if (value > best_value) {
      best_value = value;
      best = n;
    }
  }
  return best;
}

Budget::Budget(SpeculationMode mode, CostCurve curve) : mode_(std::move(mode)), curve_(std::move(curve)) {
  ESP_CHECK(!curve_.bands.empty());
  for (const int32_t rows : curve_.seen)
    if (!curve_.measured && rows >= 1 && rows <= kDraftRowsMax) widths_[static_cast<size_t>(rows - 1)].weight = 1;
}

Budget::Times Budget::curve_times(double context) const {
  Times times{};
  for (int32_t r = 1; r <= kDraftRowsMax; ++r) times[static_cast<size_t>(r - 1)] = curve_.ms(r, context);
  return times;
}

// How the machine stands to the curve, for a call of that many rows: memory bounds narrow calls, arithmetic wide ones. In the
// curve's own terms one row is all memory and 64 are all arithmetic.
double Budget::level(const Times& curve, int32_t rows) const {
  const double memory = curve.front(), arithmetic = curve.back() * static_cast<double>(rows) / kDraftRowsMax;
  return std::max(memory_ * memory, arithmetic_ * arithmetic) / std::max(memory, arithmetic);
}

Budget::Times Budget::believed_times(double context) const {
  Times times = curve_times(context);
  const Times curve = times;
  std::vector<double> known, weights;
  std::vector<size_t> at;
  for (size_t i = 0; i < curve.size(); ++i) {
    const Width& w = widths_[i];
    if (!curve_.measured && w.weight == 0) continue;
    const double prior = curve_.measured ? kStepPrior : 0;
    known.push_back(curve[i] * level(curve, static_cast<int32_t>(i) + 1) * precise_exp(w.log_ratio * w.weight / std::max(w.weight + prior, 1.0)));
    weights.push_back(w.weight + prior);
    at.push_back(i);
  }
  known = isotonic(known, weights);
  for (size_t k = 0; k < at.size(); ++k) times[at[k]] = known[k];
  if (!curve_.measured) guess_between(curve, at, times);
  return times;
}

// Widths that never ran, where only ceilings are known: on the line between those that did, wider ones as the ceilings go on,
// and a part of the rise taken off, the more the nearer the known width below is: what may be the same step is tried once.
void Budget::guess_between(const Times& curve, std::span<const size_t> known, Times& times) const {
  size_t next = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    while (next < known.size() && known[next] < i) ++next;
    if (next < known.size() && known[next] == i) continue;
    if (next == 0) {
      times[i] = curve[i] * level(curve, static_cast<int32_t>(i) + 1);
      if (!known.empty()) times[i] = std::min(times[i], times[known[0]]);
      continue;
    }
    const size_t low = known[next - 1];
    double top = times[low] * curve[i] / curve[low];
    if (next < known.size()) {
      const size_t high = known[next];
      top = times[low] + (times[high] - times[low]) * static_cast<double>(i - low) / static_cast<double>(high - low);
    }
    times[i] = times[low] + std::min(0.6, 0.05 * static_cast<double>(i - low)) * std::max(top - times[low], 0.0);
  }
}

double Budget::predicted_ms(int32_t rows, double context) const {
  ESP_CHECK(rows >= 1);
  const double beyond = rows > kDraftRowsMax ? static_cast<double>(rows) / kDraftRowsMax : 1;
  return believed_times(context)[static_cast<size_t>(std::min(rows, kDraftRowsMax) - 1)] * beyond;
}

void Budget::follow(int32_t rows, double context, double ms) {
  if (!(ms > 0) || ms > 1e9 || rows > kDraftRowsMax) return;
  const Times curve = curve_times(context);
  Width& width = widths_[static_cast<size_t>(rows - 1)];
  const double prior = curve_.measured ? kStepPrior : 0;
  const double alone = curve[static_cast<size_t>(rows - 1)];
  // A width that no curve speaks of says nothing of the rates when it is first seen.
  if (prior + width.weight > 0) {
    const double step = alone * precise_exp(width.log_ratio * width.weight / (width.weight + prior));
    follow_rates(curve, rows, ms / step);
  } else {
    ++calls_seen_;
  }
  if (prior + width.weight == 0) return learn_width({rows, context, ms});
  // The rates need that many calls to notice that the machine has changed; only then is it known what a call says of its width.
  waiting_.push_back({rows, context, ms});
  if (waiting_.size() <= kLag) return;
  learn_width(waiting_.front());
  waiting_.erase(waiting_.begin());
}

void Budget::learn_width(const CostSample& call) {
  const Times curve = curve_times(call.context);
  Width& width = widths_[static_cast<size_t>(call.rows - 1)];
  const double ratio = precise_log(call.ms / (curve[static_cast<size_t>(call.rows - 1)] * level(curve, call.rows)));
  width.weight = std::min(width.weight + 1, kWidthMemory);
  width.log_ratio += (std::clamp(ratio, -4.0, 4.0) - width.log_ratio) / width.weight;
}

void Budget::follow_rates(const Times& curve, int32_t rows, double slower) {
  const Timed timed{rows, precise_log(curve.front()), precise_log(curve.back() * static_cast<double>(rows) / kDraftRowsMax), precise_log(slower)};
  if (calls_.size() < kCalls) calls_.push_back(timed);
  else calls_[next_call_] = timed;
  next_call_ = (next_call_ + 1) % kCalls;
  ++calls_seen_;
  fit_rates();
}

// The two factors that explain the last calls with the least sum of |log| errors, newer calls weighing more: a weighted median
// where one rate bounds all of them. What no call speaks of is believed to be as profiled, and arithmetic to be faster along
// with memory but not slower with it: too good a belief is put right by the first call that tries.
void Budget::fit_rates() {
  struct Bin {
    std::vector<std::pair<double, double>> slower;
    double memory = 0, arithmetic = 0, weight = 0;
  };
  std::array<Bin, std::size(kBinEnds)> bins;
  double weight = 1;
  for (size_t age = 0; age < calls_.size(); ++age, weight *= kRecency) {
    const Timed& t = calls_[(next_call_ + 2 * kCalls - 1 - age) % kCalls];
    Bin& bin = bins[static_cast<size_t>(std::lower_bound(std::begin(kBinEnds), std::end(kBinEnds), t.rows) - std::begin(kBinEnds))];
    bin.slower.emplace_back(t.slower, weight);
    bin.memory += weight * t.memory;
    bin.arithmetic += weight * t.arithmetic;
    bin.weight += weight;
  }
  struct Seen {
    double memory, arithmetic, bound, weight;
  };
  std::vector<Seen> seen;
  std::vector<double> memories = {0}, arithmetics = {0};
  for (Bin& b : bins) {
    if (b.slower.empty()) continue;
    const double memory = b.memory / b.weight, arithmetic = b.arithmetic / b.weight;
    seen.push_back({memory, arithmetic, weighted_median(std::move(b.slower)) + std::max(memory, arithmetic), b.weight});
    memories.push_back(seen.back().bound - memory);
    arithmetics.push_back(seen.back().bound - arithmetic);
  }
  const double doubt = calls_.size() < 8 ? 1.5 : 0.0;  // the first calls have the curve's own word against them
  double least = 1e300, best_memory = 0, best_arithmetic = 0;
  arithmetics.push_back(0);
  for (const double m : memories) {
    arithmetics.back() = std::min(m, 0.0);
    for (const double a : arithmetics) {
      double error = (0.1 + doubt) * std::fabs(m) + (0.3 + doubt) * std::fabs(a - std::min(m, 0.0));
      for (const Seen& s : seen) error += s.weight * std::fabs(s.bound - std::max(m + s.memory, a + s.arithmetic));
      if (error >= least) continue;
      least = error;
      best_memory = m;
      best_arithmetic = a;
    }
  }
  memory_ = precise_exp(best_memory);
  arithmetic_ = precise_exp(best_arithmetic);
}

double Budget::allowance(double start, double growth) const { return start + growth * log2_of(1 + tokens_seen_ / 32) + kAllowanceShare * tokens_seen_; }

double Budget::speedup() const { return plain_calls_ > 0 ? std::max(1.0, tokens_ / plain_calls_) : 1.0; }

bool Budget::knows_plain() const { return curve_.measured || widths_[0].weight > 0 || calls_seen_ >= kPlainFirst; }

bool Budget::wants_block() const {
  if (mode_.kind == SpeculationMode::Kind::off) return false;
  return mode_.kind != SpeculationMode::Kind::automatic || (knows_plain() && block_.left == 0 && debt_with_block_ <= allowance(kAllowanceStart, kAllowanceGrowth));
}

size_t Budget::grow(TreeGrower& grower, const CallShape& shape, bool block) {
  size_t nodes = 0;
  if (mode_.kind == SpeculationMode::Kind::chain || mode_.kind == SpeculationMode::Kind::tree) {
    nodes = grower.grow(kDraftNodesMax);
  } else if (mode_.kind == SpeculationMode::Kind::automatic && knows_plain() && (block || debt_without_block_ <= allowance(kCheapStart, kCheapGrowth))) {
    nodes = grow_to_best(grower, shape);
  }
  grower.cut(nodes);
  tree_expects_ = 0;
  for (const float r : grower.reach()) tree_expects_ += static_cast<double>(r);
  return nodes;
}

size_t Budget::grow_to_best(TreeGrower& grower, const CallShape& shape) {
  const Times times = believed_times(shape.context);
  std::array<double, kDraftNodesMax + 1> ms;
  for (size_t n = 0; n < ms.size(); ++n) {
    const size_t rows = static_cast<size_t>(std::max(shape.rows, 1)) + n;
    const double beyond = rows > times.size() ? static_cast<double>(rows) / static_cast<double>(times.size()) : 1;
    ms[n] = times[std::min(rows, times.size()) - 1] * beyond + node_ms_ * static_cast<double>(n);
    // Where steps are not known, a few widths are learnt rather than all of them; kernels step at such numbers.
    if (!curve_.measured && n > 0 && rows > 2 && rows % 4 != 0) ms[n] = kNever;
  }
  const double price = speedup() * shape.sequences / (ms[0] + overhead_ms_) / worth();
  double gained = 0, best = -price * ms[0];
  for (size_t n = 0;;) {
    // Nothing that follows has a larger reach than the next one.
    const double next = static_cast<double>(grower.next());
    bool may_pay = false;
    for (size_t m = n + 1; m < ms.size() && next > 0 && !may_pay; ++m)
      may_pay = gained + next * static_cast<double>(m - n) - price * ms[m] > best;
    if (!may_pay || !grower.take()) break;
    gained += next;
    best = std::max(best, gained - price * ms[++n]);
  }
  const std::span<const float> reach = grower.reach();
  return choose_width(reach, std::span(ms).first(reach.size() + 1), price);
}

void Budget::Rest::begin(double most) {
  length = std::min(2 * length + 1, static_cast<int32_t>(most));
  left = length;
}

void Budget::plan_rests(const CycleReport& cycle) {
  if (mode_.kind != SpeculationMode::Kind::automatic || !knows_plain()) return;
  const double share = kRestShare * (predicted_ms(std::max(cycle.shape.rows, 1), cycle.shape.context) + overhead_ms_);
  const auto most = [&](double ms, double limit) { return std::clamp(ms / share, 0.0, limit); };
  const bool gained = cycle.tokens > cycle.shape.sequences;
  if (cycle.block && gained) block_.end();
  else if (cycle.block && cycle.nodes == 0) block_.begin(most(cycle.block_ms + cycle.grow_ms, kBlockRestMost));
  if (gained) all_.end();
  else if (cycle.nodes == 0) all_.begin(most(kAskingMs + cycle.grow_ms, kRestMost));
}

void Budget::observe(const CycleReport& cycle) {
  if (mode_.kind != SpeculationMode::Kind::automatic) return;  // a fixed width asks for no belief
  all_.pass();
  block_.pass();
  if (cycle.rested) {
    rested_ = {std::max(cycle.shape.rows, 1), cycle.shape.context, cycle.verify_ms};
    const double tokens = static_cast<double>(cycle.tokens) / std::max(cycle.shape.sequences, 1);
    tokens_seen_ += tokens;
    tokens_ += tokens - kPriceMemory * tokens_;
    plain_calls_ += 1 - kPriceMemory * plain_calls_;
    return;
  }
  if (rested_.rows > 0) follow(rested_.rows, rested_.context, rested_.ms);
  rested_ = {0, 0, 0};
  const int32_t rows = std::max(cycle.shape.rows, 1) + cycle.nodes;
  follow(rows, cycle.shape.context, cycle.verify_ms);
  const auto towards = [](double& mean, double value) { mean += (value - mean) / 16; };
  towards(overhead_ms_, cycle.commit_ms + cycle.host_ms);
  if (cycle.grow_ms > 0) towards(node_ms_, cycle.grow_ms / (cycle.nodes + 1));
  expected_ += tree_expects_ - kGainMemory * expected_;
  accepted_ += std::clamp<double>(cycle.tokens - cycle.shape.sequences, 0, cycle.nodes) - kGainMemory * accepted_;
  settle_accounts(cycle);
  plan_rests(cycle);
  tree_expects_ = 0;
}

// How many drafted tokens are right for each that reach promised.
double Budget::worth() const { return std::clamp((accepted_ + kGainPrior) / (expected_ + kGainPrior), 0.1, 2.0); }

void Budget::settle_accounts(const CycleReport& cycle) {
  const int32_t rows = std::max(cycle.shape.rows, 1);
  const Times times = believed_times(cycle.shape.context);
  const auto at = [&](int32_t r) {
    return times[static_cast<size_t>(std::min(r, kDraftRowsMax) - 1)] * std::max(1.0, static_cast<double>(r) / kDraftRowsMax);
  };
  const double plain = at(rows) + overhead_ms_;
  const double verify = std::min(cycle.verify_ms, kOutlier * at(rows + cycle.nodes));
  const double calls = (cycle.block_ms + cycle.grow_ms + verify + cycle.commit_ms + cycle.host_ms) / plain;
  const double sequences = std::max(cycle.shape.sequences, 1), tokens = static_cast<double>(cycle.tokens) / sequences;
  if (!(calls >= 0 && calls < 1e9)) return;
  tokens_seen_ += tokens;
  // What was expected rather than what came: the same in the long run, and less noise in the price.
  tokens_ += 1 + tree_expects_ * worth() / sequences - kPriceMemory * tokens_;
  plain_calls_ += calls - kPriceMemory * plain_calls_;
  if (!cycle.block && cycle.nodes == 0) return;
  double& debt = cycle.block ? debt_with_block_ : debt_without_block_;
  debt = std::max(-kCredit, debt + calls - tokens);
}

}  // namespace espalier
