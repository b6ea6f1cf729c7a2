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
constexpr double kPriceMemory = 1.0 / 32;  // share of the newest cycle in the price
constexpr double kGainMemory = 1.0 / 64;
constexpr double kGainPrior = 8;         // drafted tokens that reach counts as right from the start
constexpr double kStepPriorMeasured = 16, kStepPriorModelled = 1;  // calls that a curve's step counts as
constexpr double kWidthMemory = 64;
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
  const Times curve = curve_times(context);
  const double prior = curve_.measured ? kStepPriorMeasured : kStepPriorModelled;
  std::array<double, kDraftRowsMax> times, weights;
  for (size_t i = 0; i < curve.size(); ++i) {
    const Width& w = widths_[i];
    times[i] = curve[i] * level(curve, static_cast<int32_t>(i) + 1);
    if (w.weight > 0) times[i] *= precise_exp(w.log_ratio * w.weight / (w.weight + prior));
    weights[i] = w.weight + (curve_.measured ? prior : 0.05);
  }
  const std::vector<double> smooth = isotonic(times, weights);
  std::copy(smooth.begin(), smooth.end(), times.begin());
  return times;
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
  const double prior = curve_.measured ? kStepPriorMeasured : kStepPriorModelled;
  const double step = curve[static_cast<size_t>(rows - 1)] * precise_exp(width.log_ratio * width.weight / (width.weight + prior));
  const double memory = curve.front(), arithmetic = curve.back() * static_cast<double>(rows) / kDraftRowsMax;
  const double bound = ms / step * std::max(memory, arithmetic);  // what the larger of the two must have been
  const double share = arithmetic_ * arithmetic / (memory_ * memory);
  const double by_arithmetic = share < 0.8 ? 0.0 : share > 1.25 ? 1.0 : 0.5;
  const Timed timed{bound / memory, 1 - by_arithmetic, bound / arithmetic, by_arithmetic};
  if (calls_.size() < kCalls) calls_.push_back(timed);
  else calls_[next_call_] = timed;
  next_call_ = (next_call_ + 1) % kCalls;

  std::vector<std::pair<double, double>> memories, arithmetics;
  double weight = 1;
  for (size_t age = 0; age < calls_.size(); ++age, weight *= kRecency) {
    const Timed& t = calls_[(next_call_ + 2 * kCalls - 1 - age) % kCalls];
    if (t.memory_weight > 0) memories.emplace_back(t.memory, weight * t.memory_weight);
    if (t.arithmetic_weight > 0) arithmetics.emplace_back(t.arithmetic, weight * t.arithmetic_weight);
  }
  // A rate that no call of the window speaks of drifts back to what the curve says.
  memory_ = memories.empty() ? memory_ + (1 - memory_) / kCalls : weighted_median(std::move(memories));
  arithmetic_ = arithmetics.empty() ? arithmetic_ + (1 - arithmetic_) / kCalls : weighted_median(std::move(arithmetics));

  const double expected = curve[static_cast<size_t>(rows - 1)] * level(curve, rows);
  const double ratio = std::clamp(precise_log(ms / expected), -1.5, 1.5);
  width.weight = std::min(width.weight + 1, kWidthMemory);
  width.log_ratio += (ratio - width.log_ratio) / width.weight;
}

double Budget::allowance() const { return 3 + 1.5 * log2_of(1 + tokens_seen_ / 32); }

double Budget::speedup() const { return plain_calls_ > 0 ? std::max(1.0, tokens_ / plain_calls_) : 1.0; }

bool Budget::wants_block() const {
  if (mode_.kind == SpeculationMode::Kind::off) return false;
  return mode_.kind != SpeculationMode::Kind::automatic || debt_with_block_ <= allowance();
}

size_t Budget::grow(TreeGrower& grower, const CallShape& shape, bool block) {
  size_t nodes = 0;
  if (mode_.kind == SpeculationMode::Kind::chain || mode_.kind == SpeculationMode::Kind::tree) {
    nodes = grower.grow(kDraftNodesMax);
  } else if (mode_.kind == SpeculationMode::Kind::automatic && (block || debt_without_block_ <= allowance())) {
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
  }
  const double worth = std::clamp((accepted_ + kGainPrior) / (expected_ + kGainPrior), 0.1, 2.0);
  const double price = speedup() * shape.sequences / (ms[0] + overhead_ms_) / worth;
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

void Budget::observe(const CycleReport& cycle) {
  const int32_t rows = std::max(cycle.shape.rows, 1) + cycle.nodes;
  follow(rows, cycle.shape.context, cycle.verify_ms);
  const auto towards = [](double& mean, double value) { mean += (value - mean) / 16; };
  towards(overhead_ms_, cycle.commit_ms + cycle.host_ms);
  if (cycle.grow_ms > 0) towards(node_ms_, cycle.grow_ms / (cycle.nodes + 1));
  expected_ += tree_expects_ - kGainMemory * expected_;
  accepted_ += std::clamp<double>(cycle.tokens - cycle.shape.sequences, 0, cycle.nodes) - kGainMemory * accepted_;
  tree_expects_ = 0;
  settle_accounts(cycle);
}

void Budget::settle_accounts(const CycleReport& cycle) {
  const int32_t rows = std::max(cycle.shape.rows, 1);
  const Times times = believed_times(cycle.shape.context);
  const auto at = [&](int32_t r) {
    return times[static_cast<size_t>(std::min(r, kDraftRowsMax) - 1)] * std::max(1.0, static_cast<double>(r) / kDraftRowsMax);
  };
  const double plain = at(rows) + overhead_ms_;
  const double verify = std::min(cycle.verify_ms, kOutlier * at(rows + cycle.nodes));
  const double calls = (cycle.block_ms + cycle.grow_ms + verify + cycle.commit_ms + cycle.host_ms) / plain;
  const double tokens = static_cast<double>(cycle.tokens) / std::max(cycle.shape.sequences, 1);
  if (!(calls >= 0 && calls < 1e9)) return;
  tokens_seen_ += tokens;
  tokens_ += tokens - kPriceMemory * tokens_;
  plain_calls_ += calls - kPriceMemory * plain_calls_;
  if (!cycle.block && cycle.nodes == 0) return;
  double& debt = cycle.block ? debt_with_block_ : debt_without_block_;
  debt = std::max(0.0, debt + calls - tokens);
}

}  // namespace espalier
