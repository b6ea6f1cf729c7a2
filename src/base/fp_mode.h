// The floating-point mode that canonical arithmetic needs (rules 2.1): nearest even, subnormals kept, no traps.
#pragma once

#include <cstdint>

namespace espalier {

// Sets the mode for this thread and restores the caller's at the end of the scope. A few nanoseconds.
class FpMode {
 public:
  FpMode();
  ~FpMode();
  FpMode(const FpMode&) = delete;
  FpMode& operator=(const FpMode&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace espalier
