#include "decode/ngram_source.h"

#include <algorithm>

#include "kernels/math/canonical.h"

namespace espalier {
namespace {

constexpr int32_t kBorder = -1;  // between texts: matches nothing
constexpr float kStart[NgramSource::kSlots] = {0.5f, 0.7f, 0.85f, 0.875f, 0.9f};

uint64_t pair_key(int32_t first, int32_t second) { return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second); }

size_t slot_of(int32_t length) {
  return std::min(static_cast<size_t>(length - NgramSource::kMatchMin), NgramSource::kSlots - 1);
}

}  // namespace

Calibration NgramSource::calibration() { return Calibration(std::vector<Platt>(kSlots)); }

void NgramSource::append(int32_t token) {
  const size_t n = tokens_.size();
  // The pair before this token has a follower now.
  if (n >= 2 && token >= 0 && tokens_[n - 1] >= 0 && tokens_[n - 2] >= 0) {
    const auto [at, added] = newest_.try_emplace(pair_key(tokens_[n - 2], tokens_[n - 1]), static_cast<int32_t>(n - 1));
    if (!added) {
      previous_[n - 1] = at->second;
      at->second = static_cast<int32_t>(n - 1);
    }
  }
  tokens_.push_back(token);
  previous_.push_back(-1);
}

void NgramSource::add_text(std::span<const int32_t> tokens) {
  for (const int32_t t : tokens) append(t);
  append(kBorder);
  text_start_ = tokens_.size();
}

void NgramSource::begin(std::span<const int32_t> text) {
  offers_.clear();
  size_t have = tokens_.size() - text_start_;
  if (text.size() < have || (have > 0 && text[have - 1] != tokens_.back())) {  // another text than before
    const std::vector<int32_t> extra(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(text_start_));
    tokens_.clear();
    previous_.clear();
    newest_.clear();
    for (const int32_t t : extra) append(t);
    have = 0;
  }
  for (const int32_t t : text.subspan(have)) append(t);
}

NgramSource::Match NgramSource::match(std::span<const int32_t> path) const {
  const size_t text = tokens_.size() - text_start_, held = text + path.size();
  // Counted from the end of the path.
  const auto before = [&](size_t back) { return back < path.size() ? path[path.size() - 1 - back] : tokens_[tokens_.size() - 1 - (back - path.size())]; };
  Match best;
  if (held < static_cast<size_t>(kMatchMin)) return best;
  const auto newest = newest_.find(pair_key(before(1), before(0)));
  if (newest == newest_.end()) return best;
  const int32_t longest = static_cast<int32_t>(std::min<size_t>(held, kMatchMax));
  int32_t at = newest->second;
  for (int32_t visit = 0; visit < kVisits && at >= 0; ++visit, at = previous_[static_cast<size_t>(at)]) {
    int32_t length = kMatchMin;
    while (length < longest && length <= at && before(static_cast<size_t>(length)) == tokens_[static_cast<size_t>(at - length)] &&
           tokens_[static_cast<size_t>(at - length)] >= 0)
      ++length;
    if (length < best.length) continue;
    if (length > best.length) best = {length, 0, {}};
    ++best.places;
    const int32_t token = tokens_[static_cast<size_t>(at) + 1];
    const auto same = std::find_if(best.next.begin(), best.next.end(), [&](const Continuation& c) { return c.token == token; });
    if (same == best.next.end()) best.next.push_back({token, 1, at});
    else ++same->count;
  }
  std::sort(best.next.begin(), best.next.end(), [](const Continuation& a, const Continuation& b) {
    return a.count != b.count ? a.count > b.count : a.newest > b.newest;
  });
  return best;
}

void NgramSource::propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) {
  const Match found = match(place.path);
  if (found.length == 0) return;
  const size_t slot = slot_of(found.length);
  for (const Continuation& c : std::span(found.next).first(std::min(limit, found.next.size()))) {
    const float count = static_cast<float>(c.count), agreement = count / static_cast<float>(found.places);
    const float logit = logit_of(kStart[slot]) + 0.5f * canonical_log(count) + 2.0f * canonical_log(agreement);
    offers_.push_back({place.node, c.token, slot, logit});
    out.push_back({c.token, calibration_.probability(slot, logit)});
  }
}

void NgramSource::learn(const DraftPlace& place, int32_t token, float, bool accepted) {
  for (const Offer& o : offers_)
    if (o.node == place.node && o.token == token) calibration_.learn(o.slot, o.logit, accepted);
}

}  // namespace espalier
