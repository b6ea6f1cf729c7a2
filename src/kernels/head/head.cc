#include "kernels/head/head.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/math/canonical.h"

namespace espalier {

void head_scan_portable(const HeadScanArgs& args);
#if defined(__x86_64__)
void head_scan_avx512(const HeadScanArgs& args);
void head_scan_avx2(const HeadScanArgs& args);
#elif defined(__aarch64__)
void head_scan_neon(const HeadScanArgs& args);
#endif

namespace {

constexpr Variant<HeadScanFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, head_scan_avx512},
    {Isa::avx2, head_scan_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, head_scan_neon},
#endif
    {Isa::portable, head_scan_portable},
};

bool better(const TopEntry& a, const TopEntry& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// All ids of b are above those of a.
HeadPart merged(const HeadPart& a, const HeadPart& b) {
  if (a.max_id < 0 || b.max_id < 0) {
    HeadPart one = a.max_id < 0 ? b : a;
    one.non_finite_id = a.non_finite_id >= 0 ? a.non_finite_id : b.non_finite_id;
    return one;
  }
  HeadPart m = b.max_logit > a.max_logit ? b : a;
  m.non_finite_id = a.non_finite_id >= 0 ? a.non_finite_id : b.non_finite_id;
  m.exp_sum = std::fma(b.exp_sum, canonical_exp(b.max_logit - m.max_logit), a.exp_sum * canonical_exp(a.max_logit - m.max_logit));
  return m;
}

}  // namespace

std::span<const Variant<HeadScanFn>> head_scan_variants() { return kVariants; }

HeadPart merge_parts(std::span<const HeadPart> parts) {
  HeadPart all;
  for (const HeadPart& part : parts) all = merged(all, part);
  return all;
}

float log_sum_exp(const HeadPart& part) { return part.max_logit + canonical_log(part.exp_sum); }

// A heap of the best so far, its worst on top: almost every logit of a vocabulary fails the first comparison.
uint32_t top_k(std::span<const float> logits, uint32_t first_id, uint32_t k, std::span<TopEntry> dst) {
  const uint32_t count = static_cast<uint32_t>(std::min<size_t>(k, logits.size()));
  ESP_CHECK(dst.size() >= count);
  if (count == 0) return 0;
  const auto begin = dst.begin(), end = dst.begin() + count;
  for (uint32_t i = 0; i < count; i++) dst[i] = {static_cast<int32_t>(first_id + i), logits[i]};
  std::make_heap(begin, end, better);
  for (size_t i = count; i < logits.size(); i++) {
    if (!(logits[i] > dst[0].logit)) continue;  // an equal logit loses to the smaller ids already there
    std::pop_heap(begin, end, better);
    dst[count - 1] = {static_cast<int32_t>(first_id + i), logits[i]};
    std::push_heap(begin, end, better);
  }
  std::sort_heap(begin, end, better);
  return count;
}

uint32_t merge_top_k(std::span<const std::span<const TopEntry>> lists, uint32_t k, std::span<TopEntry> dst) {
  size_t have = 0;
  for (const auto& list : lists) have += list.size();
  const uint32_t count = static_cast<uint32_t>(std::min<size_t>(k, have));
  ESP_CHECK(dst.size() >= count);
  // Each entry's place is the number of better ones: lists are few and short, and nothing is allocated.
  for (const auto& list : lists)
    for (size_t i = 0; i < list.size(); i++) {
      size_t place = i;
      for (const auto& other : lists)
        if (&other != &list)
          place += static_cast<size_t>(std::lower_bound(other.begin(), other.end(), list[i], better) - other.begin());
      if (place < count) dst[place] = list[i];
    }
  return count;
}

}  // namespace espalier
