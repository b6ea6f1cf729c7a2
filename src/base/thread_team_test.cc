#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/fp_mode.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace espalier {
namespace {

TEST(ThreadTeam, runs_a_function_once_on_every_thread) {
  for (uint32_t n : {1u, 2u, 3u, 7u}) {
    ThreadTeam team(n);
    ASSERT_EQ(team.size(), n);
    std::vector<int> calls(n, 0);
    for (int round = 0; round < 200; ++round) team.run([&](uint32_t thread) { ++calls[thread]; });
    for (int c : calls) EXPECT_EQ(c, 200);
  }
}

TEST(ThreadTeam, parallel_for_visits_each_index_once) {
  ThreadTeam team(3);
  for (uint32_t n : {0u, 1u, 2u, 5u, 64u, 1000u}) {
    for (uint32_t grain : {0u, 1u, 3u, 64u, 5000u}) {
      std::vector<std::atomic<int>> seen(n);
      team.parallel_for(n, grain, [&](uint32_t begin, uint32_t end, uint32_t thread) {
        EXPECT_LT(thread, 3u);
        EXPECT_LE(end - begin, std::max(grain, 1u));
        for (uint32_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
    }
  }
}

TEST(ThreadTeam, writes_before_a_join_are_seen_after_it) {
  ThreadTeam team(4);
  std::vector<uint64_t> values(1000, 0);
  for (uint64_t round = 1; round <= 100; ++round) {
    team.parallel_for(1000, 7, [&](uint32_t begin, uint32_t end, uint32_t) {
      for (uint32_t i = begin; i < end; ++i) values[i] += i;
    });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), uint64_t{0}), round * 499500);
  }
}

// More threads than this machine has processors, so that barriers must sleep to make progress in time.
TEST(ThreadTeam, a_barrier_orders_phases_even_when_oversubscribed) {
  ThreadTeam team(default_thread_count() * 2 + 3);
  const uint32_t n = team.size();
  std::vector<uint32_t> slot(n, 0);
  std::atomic<int> wrong{0};
  team.run([&](uint32_t thread) {
    for (uint32_t phase = 1; phase <= 50; ++phase) {
      slot[thread] = phase;
      team.barrier();
      for (uint32_t i = 0; i < n; ++i)
        if (slot[i] != phase) ++wrong;
      team.barrier();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ThreadTeam, shared_loops_inside_one_run_cover_their_ranges) {
  ThreadTeam team(3);
  std::atomic<uint32_t> first{0}, second{0};
  std::atomic<uint64_t> sum{0};
  std::atomic<int> early{0};
  team.run([&](uint32_t thread) {
    ThreadTeam::share(first, 100, 9, thread, [&](uint32_t b, uint32_t e, uint32_t) { sum += e - b; });
    team.barrier();
    if (sum.load() < 100) ++early;
    ThreadTeam::share(second, 50, 4, thread, [&](uint32_t b, uint32_t e, uint32_t) { sum += e - b; });
  });
  EXPECT_EQ(sum.load(), 150u);
  EXPECT_EQ(early.load(), 0);
}

TEST(ThreadTeam, wakes_after_its_workers_have_gone_to_sleep) {
  ThreadTeam team(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> calls{0};
    team.run([&](uint32_t) { ++calls; });
    EXPECT_EQ(calls.load(), 2);
  }
}

TEST(ThreadCount, cpu_max_gives_whole_processors) {
  EXPECT_EQ(cpu_max_threads("max 100000"), 0u);
  EXPECT_EQ(cpu_max_threads("200000 100000"), 2u);
  EXPECT_EQ(cpu_max_threads("150000 100000"), 1u);
  EXPECT_EQ(cpu_max_threads("50000 100000"), 1u);
  EXPECT_EQ(cpu_max_threads("50000"), 0u);
  EXPECT_EQ(cpu_max_threads("50000 0"), 0u);
  EXPECT_EQ(cpu_max_threads("99999999999999999999999 1"), 0u);
  EXPECT_EQ(cpu_max_threads(""), 0u);
  EXPECT_GE(default_thread_count(), 1u);
}

#if defined(__x86_64__)
TEST(FpMode, keeps_subnormals_and_gives_the_callers_mode_back) {
  const uint32_t before = _mm_getcsr();
  _mm_setcsr(0x1f80 | 0x8040 | 0x6000);  // flush to zero, denormals are zero, towards zero
  volatile float tiny = std::numeric_limits<float>::denorm_min(), one = 1.0f, third = 3.0f;
  EXPECT_EQ(tiny * one, 0.0f);
  {
    FpMode mode;
    EXPECT_GT(tiny * one, 0.0f);
    EXPECT_EQ(2.0f / third, 0x1.555556p-1f);  // towards zero it is 0x1.555554p-1
    EXPECT_EQ(_mm_getcsr() & 0xffc0u, 0x1f80u);
  }
  EXPECT_EQ(_mm_getcsr() & 0xffc0u, 0xffc0u & (0x1f80u | 0x8040u | 0x6000u));
  _mm_setcsr(before);
}
#endif

}  // namespace
}  // namespace espalier
