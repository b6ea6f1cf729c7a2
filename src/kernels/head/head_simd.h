// The vector form of the head scan, written once. Included by head_<isa>.cc after its simd header; internal linkage.
#pragma once

#include "kernels/head/head.h"

namespace espalier {
namespace {

// The block in whole registers: the last one is filled up with `fill`.
inline Vf block_lanes(const float* logits, uint32_t n, uint32_t i, float fill) {
  if (i + kLanes <= n) return vload(logits + i);
  float last[kLanes];
  for (uint32_t l = 0; l < static_cast<uint32_t>(kLanes); l++) last[l] = i + l < n ? logits[i + l] : fill;
  return vload(last);
}

// Largest logit and where: each lane keeps its first one. Also whether all are finite: 0 * x is NaN if x is not.
inline bool find_max(const float* logits, uint32_t n, uint32_t& index) {
  Vf best = block_lanes(logits, n, 0, logits[0]), step = vzero(), at = vzero(), finite = vfma(best, vzero(), vzero());
  for (uint32_t i = kLanes; i < n; i += kLanes) {
    const Vf x = block_lanes(logits, n, i, logits[0]);
    step = vadd(step, vset(1.0f));
    const Vm more = vlt(best, x);
    best = vselect(more, x, best);
    at = vselect(more, step, at);
    finite = vfma(x, vzero(), finite);
  }
  float values[kLanes], steps[kLanes], zeros[kLanes];
  vstore(values, best);
  vstore(steps, at);
  vstore(zeros, finite);
  bool all_finite = true;
  index = 0;
  for (uint32_t l = 0; l < static_cast<uint32_t>(kLanes); l++) {
    all_finite = all_finite && zeros[l] == 0.0f;
    const uint32_t here = static_cast<uint32_t>(steps[l]) * kLanes + l;
    if (here >= n) continue;
    if (values[l] > logits[index] || (values[l] == logits[index] && here < index)) index = here;
  }
  return all_finite;
}

inline float sum_of_exp(const float* logits, uint32_t n, float max_logit) {
  constexpr int kParts = 16 / kLanes;
  Vf sums[kParts];
  for (int p = 0; p < kParts; p++) sums[p] = vzero();
  for (uint32_t i = 0; i < n; i += 16)
    for (int p = 0; p < kParts; p++)  // exp of the filling is 0
      sums[p] = vadd(sums[p], canonical_exp(vsub(block_lanes(logits, n, i + p * kLanes, -__builtin_inff()), vset(max_logit))));
  return sum16(sums);
}

inline uint32_t first_non_finite(const float* logits) {
  uint32_t i = 0;
  while (logits[i] * 0.0f == 0.0f) i++;
  return i;
}

inline void scan_block(const float* logits, uint32_t first_id, uint32_t n, bool exp_sum, HeadPart& part) {
  uint32_t index;
  part.max_logit = part.exp_sum = 0;
  part.max_id = part.non_finite_id = -1;
  if (!find_max(logits, n, index)) {
    part.non_finite_id = static_cast<int32_t>(first_id + first_non_finite(logits));
    return;
  }
  part.max_logit = logits[index];
  part.max_id = static_cast<int32_t>(first_id + index);
  if (exp_sum) part.exp_sum = sum_of_exp(logits, n, part.max_logit);
}

inline void scan(const HeadScanArgs& args) {
  for (uint32_t first = 0, block = 0; first < args.n; first += kHeadBlock, block++) {
    const uint32_t n = args.n - first < kHeadBlock ? args.n - first : kHeadBlock;
    scan_block(args.logits + first, args.first_id + first, n, args.exp_sum, args.dst[block]);
  }
}

}  // namespace
}  // namespace espalier
