#include "units/static/answers.h"

#include <algorithm>
#include <cmath>

namespace espalier::static_unit {

Status Answers::not_finite(int32_t row) const {
  return Status(Code::internal, "a logit at position " + std::to_string(call_.rows[static_cast<size_t>(row)].position) + " is not finite: the static unit's arithmetic does not hold this model's values");
}

Status Answers::best(int32_t row, float largest, int32_t id) {
  if (!std::isfinite(largest)) return not_finite(row);
  rows_[static_cast<size_t>(row)].argmax = id;
  return {};
}

Status Answers::logits(int32_t row, std::vector<float>&& logits) {
  Row& r = rows_[static_cast<size_t>(row)];
  const uint32_t wants = call_.rows[static_cast<size_t>(row)].wants;
  for (float x : logits)
    if (!std::isfinite(x)) return not_finite(row);
  const auto best = std::max_element(logits.begin(), logits.end());
  r.argmax = static_cast<int32_t>(best - logits.begin());
  if (wants & kWantLse) {
    double sum = 0;
    for (float x : logits) sum += std::exp(static_cast<double>(x) - static_cast<double>(*best));
    r.lse = static_cast<float>(static_cast<double>(*best) + std::log(sum));
  }
  if (wants & kWantTopK) r.top = top(logits);
  if (wants & kWantLogits) r.logits = std::move(logits);
  return {};
}

std::vector<TopEntry> Answers::top(const std::vector<float>& logits) const {
  std::vector<TopEntry> all(logits.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<int32_t>(i), logits[i]};
  const size_t k = std::min<size_t>(call_.top_k, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(k), all.end(),
                    [](const TopEntry& a, const TopEntry& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
  all.resize(k);
  return all;
}

void Answers::write() {
  Outputs& out = *call_.out;
  out.clear();
  for (size_t r = 0; r < rows_.size(); ++r) {
    const uint32_t wants = call_.rows[r].wants;
    if (wants & kWantArgmax) out.argmax.push_back(rows_[r].argmax);
    if (wants & kWantLogits) out.logits.insert(out.logits.end(), rows_[r].logits.begin(), rows_[r].logits.end());
    if (wants & kWantTopK) out.top.insert(out.top.end(), rows_[r].top.begin(), rows_[r].top.end());
    if (wants & kWantLse) out.lse.push_back(rows_[r].lse);
  }
  for (size_t t = 0; t < taps_.size(); ++t) {
    for (const std::vector<float>& values : taps_[t]) out.taps[t].data.insert(out.taps[t].data.end(), values.begin(), values.end());
  }
}

}  // namespace espalier::static_unit
