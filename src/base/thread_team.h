// A fixed team of threads that runs one function at a time: fork-join with a short spin, made for a call of a model (hundreds
// of joins a second, none while idle).
//
//   team.run([&](uint32_t thread) { …; team.barrier(); … });          every thread, the caller as thread 0
//   team.parallel_for(n, grain, [&](uint32_t begin, uint32_t end, uint32_t thread) { … });   dynamic pieces of `grain`
//
// Waits     workers and barriers spin for at most 50 µs, then sleep in the kernel: an idle or oversubscribed team costs nothing.
// Threads   run and parallel_for from one thread at a time, never from inside the team. Functions must not throw. Everything
//           before a join or a barrier happens before everything after it. Workers run in FpMode; the caller sees to its own.
// Size      default_thread_count(): processors that this process may use (affinity), no more than its cgroup's quota allows.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

namespace espalier {

uint32_t default_thread_count();
// Whole processors that a cgroup v2 `cpu.max` ("max 100000", "150000 100000") allows, at least 1; 0 where it sets no limit or
// is not of that form.
uint32_t cpu_max_threads(std::string_view text);

class ThreadTeam {
 public:
  // n_threads counts the caller; 0 means default_thread_count(). Threads that the system refuses to start are left out:
  // size() tells. Workers start here and end in the destructor.
  explicit ThreadTeam(uint32_t n_threads = 0);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  uint32_t size() const { return n_threads_; }

  template <typename Fn>
  void run(Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    run_raw([](void* f, uint32_t thread) { (*static_cast<F*>(f))(thread); }, const_cast<std::remove_const_t<F>*>(&fn));
  }
  // Calls fn(begin, end, thread) for pieces of [0, n) of at most `grain`, taken in ascending order. With one piece or one
  // thread the caller runs it alone and wakes nobody.
  template <typename Fn>
  void parallel_for(uint32_t n, uint32_t grain, Fn&& fn) {
    grain = grain == 0 ? 1 : grain;
    if (n <= grain || n_threads_ == 1) {
      for (uint32_t i = 0; i < n; i += piece(n, i, grain)) fn(i, i + piece(n, i, grain), 0u);
      return;
    }
    next_.store(0, std::memory_order_relaxed);
    run([&](uint32_t thread) { pieces(n, grain, fn, thread); });
  }
  // Inside run: pieces of [0, n) shared by all threads through `next`, which must be 0 before and belongs to this loop.
  template <typename Fn>
  static void share(std::atomic<uint32_t>& next, uint32_t n, uint32_t grain, uint32_t thread, Fn&& fn) {
    for (;;) {
      // The counter may pass n by threads · grain: n stays below 2^31.
      const uint32_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= n) return;
      fn(begin, begin + piece(n, begin, grain), thread);
    }
  }
  // Inside run, by every thread: none leaves before all have come.
  void barrier();

 private:
  using RawFn = void (*)(void*, uint32_t thread);
  static uint32_t piece(uint32_t n, uint32_t begin, uint32_t grain) { return n - begin < grain ? n - begin : grain; }
  template <typename Fn>
  void pieces(uint32_t n, uint32_t grain, Fn& fn, uint32_t thread) {
    share(next_, n, grain, thread, fn);
  }
  void run_raw(RawFn fn, void* context);
  void work(uint32_t thread);
  // Waits until word differs from old; spins first.
  static void wait_change(std::atomic<uint32_t>& word, uint32_t old);

  uint32_t n_threads_ = 1;
  RawFn fn_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  // Each on its own line: the generation is read by spinning workers while the others are written.
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> running_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> barrier_generation_{0};
  alignas(64) std::atomic<uint32_t> next_{0};
  std::vector<std::thread> workers_;
};

}  // namespace espalier
