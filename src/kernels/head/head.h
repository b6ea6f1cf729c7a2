// The head: what a call answers from a row of logits. Runs on blocks of ids so that threads can share a vocabulary; partial
// results are merged ascending by block.
//
// Numerics  canonical (rules 2.10). argmax: the largest logit, the smallest id among equals. Log-sum-exp: ids in blocks of 1,024
//           counted from 0; in a block m = max, s = sum16(exp(logit - m)) (canonical_exp); merged ascending:
//           M = max(m_a, m_b), S = fma(s_b, exp(m_b - M), s_a * exp(m_a - M)); the value is M + canonical_log(S).
//           A log-probability is logit - log_sum_exp. Top-k: logit descending, id ascending.
// Non-finite  a NaN or an infinity anywhere in the range is reported; the other fields then mean nothing.
// Threads   pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/top_entry.h"
#include "kernels/isa.h"

namespace espalier {

inline constexpr uint32_t kHeadBlock = 1024;

// A block of ids, or several merged ones, summed up.
struct HeadPart {
  float max_logit = 0;
  int32_t max_id = -1;         // -1: empty
  float exp_sum = 0;           // of exp(logit - max_logit); only if asked for
  int32_t non_finite_id = -1;  // the first id with a NaN or an infinity
};

struct HeadScanArgs {
  const float* logits;  // (n)
  uint32_t first_id;    // id of logits[0]: a multiple of kHeadBlock
  uint32_t n;
  bool exp_sum;   // also the sums for log_sum_exp (a second pass over a block in L1)
  HeadPart* dst;  // (ceil(n / kHeadBlock)): one part for each block
};
using HeadScanFn = void (*)(const HeadScanArgs&);
std::span<const Variant<HeadScanFn>> head_scan_variants();

// The parts of all blocks, ascending, as one. Requires: one part a block (merging merged parts gives other bits).
HeadPart merge_parts(std::span<const HeadPart> parts);
// M + log S. Requires: a part with exp_sum, not empty, finite.
float log_sum_exp(const HeadPart& part);

// The k best of logits (n), ids counted from first_id, best first; k is cut to n. dst (k). Returns the count. Requires: finite.
uint32_t top_k(std::span<const float> logits, uint32_t first_id, uint32_t k, std::span<TopEntry> dst);
// The k best of several sorted lists with different ids (one for each range), best first. Returns the count.
uint32_t merge_top_k(std::span<const std::span<const TopEntry>> lists, uint32_t k, std::span<TopEntry> dst);

}  // namespace espalier
