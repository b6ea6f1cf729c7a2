// Scan of logits, portable: the definition of its bits.
#include "kernels/head/head.h"
#include "kernels/math/canonical.h"

namespace espalier {
namespace {

HeadPart scan_block(const float* logits, uint32_t first_id, uint32_t n, bool exp_sum) {
  HeadPart part;
  uint32_t best = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!(std::fabs(logits[i]) <= std::numeric_limits<float>::max())) {
      part.non_finite_id = static_cast<int32_t>(first_id + i);
      return part;
    }
    if (logits[i] > logits[best]) best = i;
  }
  part.max_logit = logits[best];
  part.max_id = static_cast<int32_t>(first_id + best);
  if (!exp_sum) return part;
  Sum16 sum;
  for (uint32_t i = 0; i < n; i++) sum.add(i, canonical_exp(logits[i] - part.max_logit));
  part.exp_sum = sum.total();
  return part;
}

}  // namespace

void head_scan_portable(const HeadScanArgs& args) {
  for (uint32_t first = 0, block = 0; first < args.n; first += kHeadBlock, block++) {
    const uint32_t n = args.n - first < kHeadBlock ? args.n - first : kHeadBlock;
    args.dst[block] = scan_block(args.logits + first, args.first_id + first, n, args.exp_sum);
  }
}

}  // namespace espalier
