#include "kernels/head/head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/linear/linear_cases.h"

namespace espalier {
namespace {

std::vector<float> random_logits(uint32_t n, uint64_t seed, float size) {
  cases::Random random(seed);
  std::vector<float> x(n);
  for (float& v : x) v = random.uniform() * size;
  return x;
}

std::vector<HeadPart> scan(Isa isa, const std::vector<float>& logits, uint32_t first_id = 0) {
  std::vector<HeadPart> parts((logits.size() + kHeadBlock - 1) / kHeadBlock);
  pick(head_scan_variants(), isa)({logits.data(), first_id, static_cast<uint32_t>(logits.size()), true, parts.data()});
  return parts;
}

bool same(const HeadPart& a, const HeadPart& b) {
  return std::memcmp(&a.max_logit, &b.max_logit, 4) == 0 && a.max_id == b.max_id && std::memcmp(&a.exp_sum, &b.exp_sum, 4) == 0 &&
         a.non_finite_id == b.non_finite_id;
}

TEST(Head, every_variant_has_the_bits_of_the_portable_one) {
  for (uint32_t n : {1u, 3u, 4u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 100u, 1023u, 1024u, 1025u, 5000u})
    for (float size : {0.0f, 1.0f, 20.0f, 300.0f}) {
      std::vector<float> logits = random_logits(n, n, size);
      if (n > 20) logits[n - 2] = logits[n / 2] = logits[5] = size + 1;  // equal largest ones
      const std::vector<HeadPart> expected = scan(Isa::portable, logits, 2048);
      for (Isa isa : available_isas()) {
        const std::vector<HeadPart> parts = scan(isa, logits, 2048);
        for (size_t i = 0; i < parts.size(); i++)
          ASSERT_TRUE(same(parts[i], expected[i])) << isa_name(isa) << " n " << n << " block " << i;
      }
    }
}

TEST(Head, argmax_is_the_largest_logit_and_the_smallest_id) {
  std::vector<float> logits = random_logits(4000, 1, 5);
  logits[3999] = logits[2100] = logits[1030] = 6;
  for (Isa isa : available_isas()) EXPECT_EQ(merge_parts(scan(isa, logits)).max_id, 1030);
  std::fill(logits.begin(), logits.end(), -0.0f);
  logits[700] = 0.0f;  // equal to -0
  for (Isa isa : available_isas()) EXPECT_EQ(merge_parts(scan(isa, logits)).max_id, 0);
}

// u = 2^-24 a rounding. exp is within 1 unit, sum16 adds 64 + 4 terms, a merge rounds 3 times (twice an exp): at most
// 74 + 5 * blocks roundings of the sum; log and the last add work on the result itself.
TEST(Head, log_sum_exp_is_within_the_derived_bound_of_doubles) {
  for (uint32_t n : {1u, 17u, 1024u, 1025u, 65536u})
    for (float size : {1.0f, 10.0f, 60.0f}) {
      const std::vector<float> logits = random_logits(n, n + 3, size);
      const HeadPart all = merge_parts(scan(Isa::portable, logits));
      double sum = 0;
      for (float x : logits) sum += std::exp(double{x} - all.max_logit);
      const double expected = all.max_logit + std::log(sum), blocks = (n + 1023) / 1024;
      // The argument x - max is rounded, too: an absolute error of 2 * size * u in the exponent.
      const double bound =
          (74 + 5 * blocks + 2 * size * 2) * FLT_EPSILON / 2 + (std::fabs(expected) + std::log(sum) * 2 + 1) * FLT_EPSILON;
      EXPECT_NEAR(log_sum_exp(all), expected, bound) << n << " " << size;
    }
}

TEST(Head, blocks_by_threads_give_the_parts_of_one_scan) {
  const std::vector<float> logits = random_logits(5000, 8, 9);
  for (Isa isa : available_isas()) {
    const HeadPart whole = merge_parts(scan(isa, logits));
    std::vector<HeadPart> parts(5);
    const HeadScanFn fn = pick(head_scan_variants(), isa);
    fn({logits.data() + 3072, 3072, 5000 - 3072, true, parts.data() + 3});
    fn({logits.data(), 0, 3072, true, parts.data()});
    EXPECT_TRUE(same(merge_parts(parts), whole)) << isa_name(isa);
  }
}

TEST(Head, a_number_that_is_not_finite_is_named) {
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    for (uint32_t at : {0u, 1u, 15u, 16u, 1023u, 1024u, 2047u, 2050u})
      for (Isa isa : available_isas()) {
        std::vector<float> logits = random_logits(2051, at, 3);
        EXPECT_EQ(merge_parts(scan(isa, logits)).non_finite_id, -1);
        logits[at] = bad;
        logits[2050] = bad;
        EXPECT_EQ(merge_parts(scan(isa, logits)).non_finite_id, static_cast<int32_t>(at)) << isa_name(isa) << " " << bad;
      }
  const std::vector<float> large(10, FLT_MAX);  // finite
  for (Isa isa : available_isas()) EXPECT_EQ(scan(isa, large)[0].non_finite_id, -1);
}

TEST(Head, nothing_scanned_is_the_empty_part) {
  const HeadPart none = merge_parts({});
  EXPECT_EQ(none.max_id, -1);
  EXPECT_EQ(none.non_finite_id, -1);
}

TEST(TopK, equals_a_full_sort) {
  cases::Random random(3);
  for (int round = 0; round < 200; round++) {
    const uint32_t n = random.below(300), k = random.below(40);
    std::vector<float> logits(n);
    for (float& x : logits) x = static_cast<float>(random.below(30));  // many equal ones
    std::vector<TopEntry> all(n), best(k);
    for (uint32_t i = 0; i < n; i++) all[i] = {static_cast<int32_t>(100 + i), logits[i]};
    std::sort(all.begin(), all.end(),
              [](const TopEntry& a, const TopEntry& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
    all.resize(std::min(n, k));
    best.resize(top_k(logits, 100, k, best));
    ASSERT_EQ(best, all) << "n " << n << " k " << k;
  }
}

TEST(TopK, ranges_merged_are_the_whole) {
  cases::Random random(4);
  for (int round = 0; round < 100; round++) {
    std::vector<float> logits(200);
    for (float& x : logits) x = static_cast<float>(random.below(50));
    const uint32_t k = 1 + random.below(70), cut = random.below(200);
    std::vector<TopEntry> whole(k), first(k), second(k), merged(k);
    whole.resize(top_k(logits, 0, k, whole));
    first.resize(top_k(std::span(logits).first(cut), 0, k, first));
    second.resize(top_k(std::span(logits).subspan(cut), cut, k, second));
    const std::span<const TopEntry> lists[] = {second, first};
    merged.resize(merge_top_k(lists, k, merged));
    ASSERT_EQ(merged, whole) << "k " << k << " cut " << cut;
  }
}

}  // namespace
}  // namespace espalier
