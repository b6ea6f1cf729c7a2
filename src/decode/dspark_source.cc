#include "decode/dspark_source.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "decode/apply_canonical.h"
#include "decode/draft_tree.h"
#include "decode/sampler.h"
#include "kernels/math/canonical.h"

namespace espalier {
namespace {

bool better(const TopEntry& a, const TopEntry& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

constexpr float kFar = 0x1p100f;  // a logit beyond it is taken as damaged
constexpr size_t kLanes = 16;

// The largest value of each block of `lanes` x 16 values, and whether all values of those blocks are finite and near. Loops over
// 16 lanes are what every compiler turns into vectors.
struct Blocks {
  std::vector<float> tops;
  bool usable = true;
};
Blocks scan_blocks(std::span<const float> row, size_t lanes) {
  Blocks out;
  const size_t size = lanes * kLanes;
  out.tops.resize(row.size() / size);
  float least[kLanes] = {}, strange[kLanes] = {};
  for (size_t b = 0; b < out.tops.size(); ++b) {
    float most[kLanes];
    const float* values = row.data() + b * size;
    std::copy_n(values, kLanes, most);
    for (size_t i = 0; i < size; i += kLanes)
      for (size_t l = 0; l < kLanes; ++l) {
        const float v = values[i + l];
        most[l] = most[l] < v ? v : most[l];
        least[l] = v < least[l] ? v : least[l];
        strange[l] += v * 0.0f;  // not a number if v is none, or has no end
      }
    for (size_t n = kLanes / 2; n > 0; n /= 2)
      for (size_t l = 0; l < n; ++l) most[l] = most[l] < most[l + n] ? most[l + n] : most[l];
    out.tops[b] = most[0];
  }
  for (size_t l = 0; l < kLanes; ++l) out.usable = out.usable && strange[l] == 0.0f && least[l] > -kFar;
  for (const float top : out.tops) out.usable = out.usable && top < kFar;
  return out;
}

// The best `count` of a row, best first; nothing where a value is damaged. The largest values of all blocks say where the line
// runs: that many of them are above it, so nothing below it gets in, and most blocks need not be looked at.
std::vector<TopEntry> best_of(std::span<const float> row, size_t count) {
  const size_t lanes = row.size() < 16384 ? 1 : 4, size = lanes * kLanes;
  const Blocks blocks = scan_blocks(row, lanes);
  if (!blocks.usable) return {};
  float line = -std::numeric_limits<float>::infinity();
  if (blocks.tops.size() >= count) {
    std::vector<float> ordered = blocks.tops;
    std::nth_element(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(count - 1), ordered.end(), std::greater<>());
    line = ordered[count - 1];
  }
  std::vector<TopEntry> found;
  found.reserve(2 * count);
  const auto take = [&](size_t i) {
    if (row[i] >= line) found.push_back({static_cast<int32_t>(i), row[i]});
  };
  for (size_t b = 0; b < blocks.tops.size(); ++b)
    if (blocks.tops[b] >= line)
      for (size_t i = b * size; i < (b + 1) * size; ++i) take(i);
  for (size_t i = blocks.tops.size() * size; i < row.size(); ++i) {
    if (!(std::fabs(row[i]) < kFar)) return {};
    take(i);
  }
  const auto end = found.begin() + static_cast<std::ptrdiff_t>(std::min(count, found.size()));
  std::nth_element(found.begin(), end, found.end(), better);
  found.erase(end, found.end());
  std::sort(found.begin(), found.end(), better);
  return found;
}

// Sum of exp(row - shift), 16 partial sums.
float mass_of(std::span<const float> row, float shift) {
  constexpr size_t kPiece = 1024;
  float values[kPiece];
  Sum16 sum;
  for (size_t first = 0; first < row.size(); first += kPiece) {
    const size_t n = std::min(kPiece, row.size() - first);
    for (size_t i = 0; i < n; ++i) values[i] = row[first + i] - shift;
    apply_canonical(CanonicalFunction::exp, std::span(values, n));
    for (size_t i = 0; i < n; ++i) sum.add(static_cast<uint32_t>(i), values[i]);
  }
  return sum.total();
}

// What a proposal's probability is held off 0 and 1 by.
constexpr float kLeast = 1e-6f;
// Depths whose best token is likely to have children.
constexpr size_t kLikely = 4;
// Finding a token's best biases in a large table takes 1 ms of a cycle's 180 (LFM2.5-2.6B): half a hundredth, as much as 0.02
// tokens. It makes some 0.15 tokens of a place that is reached for sure.
constexpr float kDearReach = 0.15f;
// Beyond it a logit is taken as damaged.
constexpr float kFinite = 1e30f;

}  // namespace

Calibration DsparkSource::calibration(bool greedy) {
  // Held-out turns of the demo model, ten best children of every place on the way; sampling at temperature 0.8.
  if (greedy)
    return Calibration({{0.86f, -0.22f}, {0.88f, -0.18f}, {0.88f, -0.17f}, {0.85f, -0.24f}, {0.88f, -0.21f}, {0.86f, -0.25f}, {0.90f, -0.18f}, {0.84f, -0.28f}, {0.74f, -0.42f}});
  return Calibration({{0.91f, -0.24f}, {0.90f, -0.23f}, {0.89f, -0.25f}, {0.87f, -0.31f}, {0.88f, -0.31f}, {0.87f, -0.34f}, {0.91f, -0.29f}, {0.86f, -0.36f}, {0.79f, -0.47f}});
}

DsparkSource::DsparkSource(MarkovHead& head, Calibration& calibration, const Sampling& rules, DsparkOptions options)
    : head_(head), calibration_(calibration), rules_(rules), options_(options) {}

void DsparkSource::begin(std::span<const int32_t> text) {
  block_ = {};
  root_token_ = text.empty() ? -1 : text.back();
  next_position_ = static_cast<int32_t>(text.size());
}

void DsparkSource::set_block(const DraftBlock& block) {
  const size_t depths = static_cast<size_t>(std::max(block.depths, 0));
  ESP_CHECK(block.logits.size() == depths * static_cast<size_t>(head_.head().vocabulary));
  ESP_CHECK(block.lse.empty() || block.lse.size() == depths);
  ESP_CHECK(block.hidden.empty() || block.hidden.size() == depths * static_cast<size_t>(head_.head().hidden));
  block_ = block;
  depths_.resize(std::max(depths_.size(), depths));
  for (Depth& d : depths_) d.known = false;
  leads_.clear();
  chain_.assign(1, root_token_);
  chain_leads_.clear();
  offers_.clear();
}

std::span<const float> DsparkSource::hidden_row(size_t d) const {
  const size_t width = static_cast<size_t>(head_.head().hidden);
  return block_.hidden.empty() ? std::span<const float>{} : block_.hidden.subspan(d * width, width);
}

const DsparkSource::Depth& DsparkSource::depth(size_t d) {
  Depth& known = depths_[d];
  if (known.known) return known;
  const size_t vocabulary = static_cast<size_t>(head_.head().vocabulary);
  const std::span<const float> row = block_.logits.subspan(d * vocabulary, vocabulary);
  known.known = true;
  known.mass = 0;
  known.top = best_of(row, kBaseTop);
  if (known.top.empty()) return known;
  known.sorted.clear();
  for (const TopEntry& e : known.top) known.sorted.push_back(e.id);
  std::sort(known.sorted.begin(), known.sorted.end());
  weights_.clear();
  for (const TopEntry& e : known.top) weights_.push_back(e.logit - known.top.front().logit);
  apply_canonical(CanonicalFunction::exp, weights_);
  known.top_mass = 0;
  for (const float w : weights_) known.top_mass += w;
  known.shift = known.top.front().logit;
  known.mass = block_.lse.empty() ? mass_of(row, known.shift) : canonical_exp(block_.lse[d] - known.shift);
  if (!(known.mass < kFinite)) known.mass = 0;
  return known;
}

// Fills scored_ and rest_ for the children, at row d, of a token with that lead. False: nothing can be said.
bool DsparkSource::score(size_t d, int32_t token, const MarkovHead::Lead& lead, float reach) {
  const Depth& at = depth(d);
  if (!(at.mass > 0)) return false;
  const std::span<const float> row = block_.logits.subspan(d * static_cast<size_t>(head_.head().vocabulary));
  ids_.clear();
  for (const TopEntry& e : at.top) ids_.push_back(e.id);
  const std::span<const TopEntry> biased = reach >= kDearReach || !head_.is_dear(token) ? head_.top(token) : std::span<const TopEntry>{};
  for (const TopEntry& e : biased)
    if (!std::binary_search(at.sorted.begin(), at.sorted.end(), e.id)) ids_.push_back(e.id);
  bias_.resize(ids_.size());
  head_.bias(lead, ids_, bias_);

  scored_.clear();
  weights_.clear();
  for (size_t i = 0; i < ids_.size(); ++i) {
    const float base = row[static_cast<size_t>(ids_[i])], logit = base + bias_[i];
    if (i >= at.top.size()) weights_.push_back(base - at.shift);
    if (std::fabs(logit) < kFinite) scored_.push_back({ids_[i], logit, logit});
  }
  apply_canonical(CanonicalFunction::exp, weights_);
  float covered = at.top_mass;
  for (const float w : weights_) covered += w;
  if (scored_.empty()) return false;
  float tail = std::max(at.mass - covered, 0.0f);
  if (!rules_.greedy()) {
    if (rules_.top_k > 0 || rules_.top_p < 1 || rules_.min_p > 0) {
      drop_what_sampling_drops();
      tail = 0;
    }
    const int32_t position = next_position_ + static_cast<int32_t>(d);
    for (Scored& s : scored_) s.score = s.logit + rules_.temperature * gumbel(rules_.seed, position, s.id, rules_.choice);
  }
  float most = scored_.front().score;
  for (const Scored& s : scored_) most = std::max(most, s.score);
  rest_ = tail > 0 ? tail * canonical_exp(at.shift - most) : 0.0f;
  return rest_ < kFinite;
}

// The target's own rules on the draft's logits.
void DsparkSource::drop_what_sampling_drops() {
  std::sort(scored_.begin(), scored_.end(), [](const Scored& a, const Scored& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
  if (rules_.top_k > 0 && scored_.size() > static_cast<size_t>(rules_.top_k)) scored_.resize(static_cast<size_t>(rules_.top_k));
  std::vector<float> weights;
  float total = 0;
  for (const Scored& s : scored_) total += weights.emplace_back(canonical_exp((s.logit - scored_.front().logit) / rules_.temperature));
  size_t kept = 0;
  for (float sum = 0; kept < scored_.size() && sum < rules_.top_p * total && weights[kept] >= rules_.min_p; ++kept) sum += weights[kept];
  scored_.resize(std::max<size_t>(kept, 1));
}

const MarkovHead::Lead* DsparkSource::lead_of(const DraftPlace& place, size_t d, int32_t token) {
  const size_t index = static_cast<size_t>(place.node + 1);
  leads_.resize(std::max(leads_.size(), index + 1));
  const MarkovHead::Lead* parent = place.node == kRoot ? nullptr : &leads_[static_cast<size_t>(place.parent + 1)];
  if (parent != nullptr && parent->direction.empty()) parent = nullptr;
  head_.lead(token, hidden_row(d), parent, leads_[index]);
  return &leads_[index];
}

// Of the greedy chain's token at depth d, whose children stand for those of every place at that depth.
const MarkovHead::Lead* DsparkSource::lead_of_chain(size_t d) {
  chain_leads_.reserve(static_cast<size_t>(block_.depths));
  while (chain_leads_.size() <= d) {
    const size_t at = chain_leads_.size();
    if (at > 0) {
      if (!score(at - 1, chain_[at - 1], chain_leads_[at - 1], 1)) return nullptr;
      chain_.push_back(std::max_element(scored_.begin(), scored_.end(), [](const Scored& a, const Scored& b) {
                         return a.score != b.score ? a.score < b.score : a.id > b.id;
                       })->id);
    }
    MarkovHead::Lead next;
    head_.lead(chain_[at], hidden_row(at), at == 0 ? nullptr : &chain_leads_[at - 1], next);
    chain_leads_.push_back(std::move(next));
  }
  return &chain_leads_[d];
}

// The best biases of the tokens that are likely to be expanded, in one pass rather than one by one.
void DsparkSource::prepare_likely() {
  ids_.assign(1, root_token_);
  for (size_t d = 0; d < std::min<size_t>(kLikely, static_cast<size_t>(block_.depths - 1)); ++d) {
    const Depth& at = depth(d);
    if (!(at.mass > 0)) break;
    ids_.push_back(at.top.front().id);
  }
  head_.prepare(ids_);
}

void DsparkSource::propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) {
  const size_t d = place.path.size();
  int32_t token = place.path.empty() ? root_token_ : place.path.back();
  if (d >= static_cast<size_t>(std::max(block_.depths, 0)) || token < 0 || token >= head_.head().vocabulary || limit == 0) return;
  const MarkovHead::Lead* lead = options_.depth_marginal ? lead_of_chain(d) : lead_of(place, d, token);
  if (lead == nullptr) return;
  if (place.node == kRoot) prepare_likely();
  if (options_.depth_marginal) token = chain_[d];
  if (!score(d, token, *lead, place.reach)) return;
  limit = std::min(limit, scored_.size());
  std::partial_sort(scored_.begin(), scored_.begin() + static_cast<std::ptrdiff_t>(limit), scored_.end(),
                    [](const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; });
  const float most = scored_.front().score;
  weights_.clear();
  for (const Scored& s : scored_) weights_.push_back(s.score - most);
  apply_canonical(CanonicalFunction::exp, weights_);
  float total = rest_;
  for (const float w : weights_) total += w;
  size_t count = 1;
  while (count < limit && weights_[count] >= kLeast * total) ++count;

  // Log-odds of each: its score against the logarithm of all others' weight.
  weights_.resize(count);
  for (float& w : weights_) w = std::max(total - w, kLeast * total);
  apply_canonical(CanonicalFunction::log, weights_);
  offers_.resize(std::max(offers_.size(), static_cast<size_t>(place.node) + 2));
  std::vector<Offer>& offers = offers_[static_cast<size_t>(place.node + 1)];
  for (size_t i = 0; i < count; ++i) {
    weights_[i] = scored_[i].score - most - weights_[i];
    offers.push_back({scored_[i].id, weights_[i]});
  }
  calibration_.probabilities(d, weights_);
  for (size_t i = 0; i < count; ++i) out.push_back({scored_[i].id, weights_[i]});
}

void DsparkSource::learn(const DraftPlace& place, int32_t token, float, bool accepted) {
  const size_t index = static_cast<size_t>(place.node + 1);
  if (index >= offers_.size()) return;
  for (const Offer& o : offers_[index])
    if (o.token == token) return calibration_.learn(place.path.size(), o.logit, accepted);
}

}  // namespace espalier
