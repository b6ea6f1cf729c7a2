#include "kernels/linear/test_peak.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace espalier::test_peak {
namespace {

volatile uint64_t keep;

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t read_streams(const uint8_t* data, size_t part, uint32_t streams) {
  __m256i sum[4] = {};
  for (size_t i = 0; i + 256 <= part; i += 256)
    for (uint32_t s = 0; s < streams; s++) {
      const auto* p = reinterpret_cast<const __m256i*>(data + s * part + i);
      for (int j = 0; j < 4; j++)
        sum[j] = _mm256_xor_si256(sum[j], _mm256_xor_si256(_mm256_loadu_si256(p + j), _mm256_loadu_si256(p + j + 4)));
    }
  uint64_t words[16], all = 0;
  std::memcpy(words, sum, sizeof words);
  for (uint64_t w : words) all ^= w;
  return all;
}

// Inline assembly: a compiler must not see that every step adds the same.
#define TEST_PEAK_24(X)                                                                                                      \
  X(0)                                                                                                                       \
  X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) \
      X(23)
#define TEST_PEAK_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define TEST_PEAK_CLOBBERS                                                                                                     \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", \
      "xmm15"
__attribute__((target("avx512f,avx512vnni"))) uint64_t macs_avx512(uint64_t steps) {
#define X(i) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #i "\n"
  uint64_t left = steps;
  __asm__ volatile("1:\n" TEST_PEAK_24(X) "dec %0\n jnz 1b\n"
                   : "+r"(left)::"cc", TEST_PEAK_CLOBBERS, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22",
                     "xmm23");
#undef X
  return steps * 24 * 64;
}
__attribute__((target("amx-int8,amx-tile"))) uint64_t macs_amx(uint64_t steps) {
  alignas(64) struct {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  steps /= 16;  // a step does 32 times the work of an AVX-512 one
  uint64_t left = steps;
  __asm__ volatile(
      "ldtilecfg %1\n tilezero %%tmm4\n tilezero %%tmm5\n tilezero %%tmm6\n tilezero %%tmm7\n"
      "1:\n tdpbsud %%tmm6, %%tmm4, %%tmm0\n tdpbsud %%tmm7, %%tmm4, %%tmm1\n tdpbsud %%tmm6, %%tmm5, %%tmm2\n"
      "tdpbsud %%tmm7, %%tmm5, %%tmm3\n dec %0\n jnz 1b\n tilerelease\n"
      : "+r"(left)
      : "m"(config)
      : "cc");
  return steps * 4 * 16384;
}
uint64_t macs_avx_vnni(uint64_t steps) {
#define X(i) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #i "\n"
  uint64_t left = steps;
  __asm__ volatile("1:\n" TEST_PEAK_12(X) "dec %0\n jnz 1b\n vzeroupper\n" : "+r"(left)::"cc", TEST_PEAK_CLOBBERS);
#undef X
  return steps * 12 * 32;
}
uint64_t macs_avx2(uint64_t steps) {  // the sign trick's four instructions
#define X(i)                                                                                                                \
  "vpsignb %%ymm13, %%ymm15, %%ymm12\n vpmaddubsw %%ymm12, %%ymm14, %%ymm12\n vpmaddwd %%ymm13, %%ymm12, %%ymm12\n vpaddd " \
  "%%ymm12, %%ymm" #i ", %%ymm" #i "\n"
  uint64_t left = steps;
  __asm__ volatile("1:\n" TEST_PEAK_12(X) "dec %0\n jnz 1b\n vzeroupper\n" : "+r"(left)::"cc", TEST_PEAK_CLOBBERS);
#undef X
  return steps * 12 * 32;
}
#else
uint64_t read_streams(const uint8_t* data, size_t part, uint32_t streams) {
  uint64_t all = 0;
  for (size_t i = 0; i + 8 <= part * streams; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, 8);
    all ^= word;
  }
  return all;
}
#endif

uint64_t macs_portable(uint64_t steps) {
  int32_t sums[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  volatile int8_t seed = 3;
  const int32_t x = seed;
  for (uint64_t i = 0; i < steps; i++)
    for (int32_t& s : sums) s += x * static_cast<int32_t>(i & 127);
  for (int32_t s : sums) keep = keep + static_cast<uint64_t>(s);
  return steps * 8;
}

}  // namespace

uint64_t read(const uint8_t* data, size_t bytes, uint32_t streams) {
  return read_streams(data, bytes / streams / 256 * 256, streams);
}

uint64_t int8_macs(Isa isa, uint64_t steps) {
#if defined(__x86_64__)
  if (isa == Isa::amx_int8) return steps < 16 ? 0 : macs_amx(steps);
  if (isa == Isa::avx512_vnni) return macs_avx512(steps);
  if (isa == Isa::avx_vnni) return macs_avx_vnni(steps);
  if (isa == Isa::avx2) return macs_avx2(steps);
#endif
  static_cast<void>(isa);
  return macs_portable(steps);
}

}  // namespace espalier::test_peak
