// The clock that calls are timed with.
#pragma once

#include <chrono>
#include <cstdint>

namespace espalier {

// Nanoseconds on a clock that never goes back; its zero means nothing. Any thread.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace espalier
