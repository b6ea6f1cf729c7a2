#include "base/thread_team.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <string>
#include <system_error>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "base/fp_mode.h"

namespace espalier {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

uint32_t affinity_count() {
#if defined(__linux__)
  // The kernel refuses a mask smaller than its own, so it grows until it fits.
  for (int cpus = 1024; cpus <= 1 << 18; cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (ok) return static_cast<uint32_t>(std::max(1, count));
  }
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

// The smallest limit on the way from this process's cgroup to the root; 0: none.
uint32_t cgroup_count() {
  uint32_t least = 0;
#if defined(__linux__)
  std::ifstream groups("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(groups, line))
    if (line.starts_with("0::/")) path = line.substr(3);
  for (;;) {
    std::ifstream file("/sys/fs/cgroup" + path + (path.ends_with('/') ? "" : "/") + "cpu.max");
    if (std::getline(file, line)) {
      const uint32_t n = cpu_max_threads(line);
      if (n != 0) least = least == 0 ? n : std::min(least, n);
    }
    if (path.empty() || path == "/") return least;
    path.erase(path.rfind('/'));
  }
#endif
  return least;
}

}  // namespace

uint32_t cpu_max_threads(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return 0;
  uint64_t quota = 0, period = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), text.data() + space, quota);
  const auto second = std::from_chars(text.data() + space + 1, end, period);
  if (first.ec != std::errc() || first.ptr != text.data() + space || second.ec != std::errc() || period == 0) return 0;
  return static_cast<uint32_t>(std::clamp<uint64_t>(quota / period, 1, 1 << 20));
}

uint32_t default_thread_count() {
  const uint32_t quota = cgroup_count();
  return quota == 0 ? affinity_count() : std::min(affinity_count(), quota);
}

ThreadTeam::ThreadTeam(uint32_t n_threads) {
  if (n_threads == 0) n_threads = default_thread_count();
  workers_.reserve(n_threads - 1);
  // Workers read n_threads_ only after the first generation, so it may grow while they start.
  for (uint32_t i = 1; i < n_threads; ++i) {
    try {
      workers_.emplace_back([this, i] { work(i); });
    } catch (const std::system_error&) {
      break;
    }
    n_threads_ = i + 1;
  }
}

ThreadTeam::~ThreadTeam() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::wait_change(std::atomic<uint32_t>& word, uint32_t old) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 64; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() - start < kSpin);
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

void ThreadTeam::run_raw(RawFn fn, void* context) {
  if (n_threads_ == 1) return fn(context, 0);
  ESP_DCHECK(running_.load() == 0);
  fn_ = fn;
  context_ = context;
  running_.store(n_threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  fn(context, 0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0; left = running_.load(std::memory_order_acquire))
    wait_change(running_, left);
}

void ThreadTeam::work(uint32_t thread) {
  FpMode mode;
  for (uint32_t seen = 0;; ++seen) {
    wait_change(generation_, seen);
    if (stop_) return;
    fn_(context_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadTeam::barrier() {
  if (n_threads_ == 1) return;
  const uint32_t generation = barrier_generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    barrier_generation_.fetch_add(1, std::memory_order_release);
    barrier_generation_.notify_all();
    return;
  }
  wait_change(barrier_generation_, generation);
}

}  // namespace espalier
