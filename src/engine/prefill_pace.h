// How many rows of a prompt go into one call: as many as fit 250 ms at the measured rate, so that cancel takes effect soon.
// The number changes no bit of any result.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace espalier {

inline constexpr int32_t kPrefillRowsMin = 16, kPrefillRowsMax = 512;
inline constexpr int64_t kPrefillCallNs = 250'000'000;

// Thread-safe: requests of one model share it.
class PrefillPace {
 public:
  int32_t rows() const { return rows_.load(std::memory_order_relaxed); }
  // A call of `rows` rows took `ns`. Calls of a few rows cost what reading the weights costs and say little.
  void record(int32_t rows, int64_t ns) {
    if (rows < kPrefillRowsMin) return;
    const int64_t fit = kPrefillCallNs * rows / std::max<int64_t>(ns, 1);
    const int64_t most = std::min<int64_t>(kPrefillRowsMax, int64_t{rows} * 4);  // larger calls are not cheaper by more
    const int64_t next = std::clamp<int64_t>(fit, kPrefillRowsMin, std::max<int64_t>(most, kPrefillRowsMin));
    rows_.store(static_cast<int32_t>(next / 16 * 16), std::memory_order_relaxed);
  }

 private:
  std::atomic<int32_t> rows_{64};
};

}  // namespace espalier
