#include "base/fp_mode.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace espalier {
namespace {

// The register is read and written as a whole: MXCSR on x86 (rounding, flush-to-zero, denormals-are-zero, exception masks),
// FPCR on AArch64 (rounding, flush-to-zero, traps; 0 is nearest even, subnormals kept, no traps).
#if defined(__x86_64__)
uint64_t read_mode() { return _mm_getcsr(); }
void write_mode(uint64_t mode) { _mm_setcsr(static_cast<uint32_t>(mode)); }
constexpr uint64_t kFlags = 0x3f;          // sticky exception flags stay the caller's
constexpr uint64_t kCanonical = 0x1f80;    // all masked, nearest even
uint64_t canonical_mode(uint64_t caller) { return (caller & kFlags) | kCanonical; }
#elif defined(__aarch64__)
uint64_t read_mode() {
  uint64_t mode = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void write_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
uint64_t canonical_mode(uint64_t) { return 0; }
#else
uint64_t read_mode() { return 0; }
void write_mode(uint64_t) {}
uint64_t canonical_mode(uint64_t) { return 0; }
#endif

}  // namespace

FpMode::FpMode() : saved_(read_mode()) { write_mode(canonical_mode(saved_)); }
FpMode::~FpMode() { write_mode(saved_); }

}  // namespace espalier
