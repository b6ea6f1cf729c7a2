#include "decode/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "decode/philox.h"
#include "kernels/math/canonical.h"
#include "kernels/math/precise.h"

namespace espalier {
namespace {

bool before(const TopEntry& a, const TopEntry& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

// No noise is above this (u = 1 - 2^-25); rounded up.
constexpr float kNoiseMax = 17.33f;

float penalised(float logit, const History::Counts& n, const Sampling& rules) {
  logit = logit > 0 ? logit / rules.repetition_penalty : logit * rules.repetition_penalty;
  if (n.answer > 0) {
    logit -= rules.presence_penalty;
    logit -= rules.frequency_penalty * static_cast<float>(n.answer);
  }
  return logit;
}

// The 24 bits that a candidate's noise is made of.
uint32_t noise_bits(uint64_t seed, int32_t position, int32_t id, uint32_t choice) {
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  return philox4x32_10({static_cast<uint32_t>(position), static_cast<uint32_t>(id), choice, 0}, key)[0] >> 8;
}

float noise_of(uint32_t bits) {
  // In fp32 the largest u would round to 1 and its noise to infinity.
  const double u = (static_cast<double>(bits) + 0.5) * 0x1p-24;
  return static_cast<float>(-precise_log(-precise_log(u)));
}

// True only if the noise is below `least` for sure: -log(-log u) <= -log(1 - u), and an exponential costs less than two
// logarithms. The margin is far above the rounding of logits up to kBoundedLogit.
constexpr float kBoundedLogit = 1000;
bool stays_below(uint32_t bits, float least) {
  const float rest = static_cast<float>(0xffffff - bits) * 0x1p-24f;  // at most 1 - u, exactly
  return rest > 1.001f * canonical_exp(-least);
}

}  // namespace

float gumbel(uint64_t seed, int32_t position, int32_t id, uint32_t choice) { return noise_of(noise_bits(seed, position, id, choice)); }

void History::add_prompt(std::span<const int32_t> ids) {
  for (const int32_t id : ids) counts_[id].prompt = true;
}
void History::push(int32_t id) { ++counts_[id].answer; }
void History::pop(int32_t id) {
  const auto at = counts_.find(id);
  ESP_CHECK(at != counts_.end() && at->second.answer > 0);
  if (--at->second.answer == 0 && !at->second.prompt) counts_.erase(at);
}

Sampler::Needs Sampler::needs() const {
  if (rules_.changes_logits()) return Needs::logits;
  if (rules_.greedy()) return Needs::argmax;
  return rules_.top_k > 0 && rules_.top_k <= 1024 ? Needs::top : Needs::logits;
}

int32_t Sampler::choose(std::span<const float> logits, const History& history, int32_t position) {
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) candidates_[i] = {static_cast<int32_t>(i), logits[i] + 0.0f};  // -0 becomes 0
  const int32_t size = static_cast<int32_t>(logits.size());
  for (const auto& [id, bias] : rules_.logit_bias)
    if (id < size) candidates_[id].logit += bias;
  if (rules_.changes_logits())
    for (const auto& [id, n] : history.counts())
      if (id < size) candidates_[id].logit = penalised(candidates_[id].logit, n, rules_) + 0.0f;
  if (rules_.greedy()) return std::min_element(candidates_.begin(), candidates_.end(), before)->id;
  // Division by the temperature keeps the order, so candidates are ordered by their logits once and for all.
  if (rules_.top_k > 0) keep_best(static_cast<size_t>(rules_.top_k));
  else if (rules_.top_p < 1) sort_all();
  filter();
  return draw(position);
}

int32_t Sampler::choose(std::span<const TopEntry> best, int32_t position) {
  candidates_.assign(best.begin(), best.end());
  filter();
  return draw(position);
}

void Sampler::keep_best(size_t count) {
  count = std::min(count, candidates_.size());
  if (count < candidates_.size())
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count), candidates_.end(), before);
  candidates_.resize(count);
  std::sort(candidates_.begin(), candidates_.end(), before);
}

// Radix sort by logit, descending; stable, and candidates come in order of id. Ten times std::sort on 65,536 entries.
void Sampler::sort_all() {
  const auto key = [](float f) {  // ascending key of a descending value
    const uint32_t u = std::bit_cast<uint32_t>(f);
    return (u & 0x80000000u) != 0 ? u : ~(u | 0x80000000u);
  };
  scratch_.resize(candidates_.size());
  for (int shift = 0; shift < 33; shift += 11) {
    std::array<uint32_t, 2049> start{};
    for (const TopEntry& c : candidates_) ++start[((key(c.logit) >> shift) & 2047u) + 1];
    for (size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
    for (const TopEntry& c : candidates_) scratch_[start[(key(c.logit) >> shift) & 2047u]++] = c;
    candidates_.swap(scratch_);
  }
}

// Top-p, then min-p. With top-p the candidates are sorted.
void Sampler::filter() {
  if (rules_.top_p >= 1 && rules_.min_p <= 0) return;
  const float best = std::min_element(candidates_.begin(), candidates_.end(), before)->logit / rules_.temperature;
  const auto weight = [&](const TopEntry& c) { return canonical_exp(c.logit / rules_.temperature - best); };
  if (rules_.top_p < 1) {
    double total = 0;
    for (const TopEntry& c : candidates_) total += static_cast<double>(weight(c));
    double sum = 0;
    size_t kept = 0;
    while (kept < candidates_.size() && sum < static_cast<double>(rules_.top_p) * total)
      sum += static_cast<double>(weight(candidates_[kept++]));
    candidates_.resize(std::max<size_t>(kept, 1));
  }
  if (rules_.min_p > 0) std::erase_if(candidates_, [&](const TopEntry& c) { return weight(c) < rules_.min_p; });
}

int32_t Sampler::draw(int32_t position) const {
  // The best candidate first: nearly all others are then out of reach of any noise.
  TopEntry chosen = *std::min_element(candidates_.begin(), candidates_.end(), before);
  float most = chosen.logit / rules_.temperature + gumbel(rules_.seed, position, chosen.id, rules_.choice);
  for (const TopEntry& c : candidates_) {
    const float logit = c.logit / rules_.temperature;
    if (logit + kNoiseMax < most) continue;
    const uint32_t bits = noise_bits(rules_.seed, position, c.id, rules_.choice);
    if (std::fabs(logit) < kBoundedLogit && std::fabs(most) < kBoundedLogit && stays_below(bits, most - logit)) continue;
    const float value = logit + noise_of(bits);
    if (value > most || (value == most && before(c, chosen))) {
      most = value;
      chosen = c;
    }
  }
  return chosen.id;
}

}  // namespace espalier
