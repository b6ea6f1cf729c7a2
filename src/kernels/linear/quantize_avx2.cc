// Activation quantisation with AVX2.
#include <immintrin.h>

#include "kernels/linear/quantize.h"

namespace espalier {

void quantize_avx2(const QuantizeArgs& args);

namespace {

// One stage inside a register: `other` holds the partner of each lane; the sign of lanes that are second in a pair is flipped:
// a - b = a + (-b).
inline __m256 stage(__m256 x, __m256 other, __m256 flip) { return _mm256_add_ps(other, _mm256_xor_ps(x, flip)); }

inline __m256 inner_stages(__m256 x) {
  x = stage(x, _mm256_permute_ps(x, 0xb1), _mm256_setr_ps(0, -0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f));
  x = stage(x, _mm256_permute_ps(x, 0x4e), _mm256_setr_ps(0, 0, -0.0f, -0.0f, 0, 0, -0.0f, -0.0f));
  return stage(x, _mm256_permute2f128_ps(x, x, 1), _mm256_setr_ps(0, 0, 0, 0, -0.0f, -0.0f, -0.0f, -0.0f));
}

void rotate(float* x, uint32_t n) {
  for (uint32_t i = 0; i < n; i += 64) {
    __m256 v[8];
    for (int j = 0; j < 8; j++) v[j] = inner_stages(_mm256_load_ps(x + i + 8 * j));
    for (int half = 1; half < 8; half *= 2)
      for (int j = 0; j < 8; j++) {
        if ((j & half) != 0) continue;
        const __m256 a = v[j], b = v[j + half];
        v[j] = _mm256_add_ps(a, b);
        v[j + half] = _mm256_sub_ps(a, b);
      }
    for (int j = 0; j < 8; j++) _mm256_store_ps(x + i + 8 * j, _mm256_mul_ps(v[j], _mm256_set1_ps(0.125f)));
  }
}

// Groups are read in whole registers: the frame's buffer is zero past the row's end, and a group that is not the last has a
// multiple of 32 inputs.
uint32_t largest_bits(const float* x, uint32_t n) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  for (uint32_t i = 0; i < n; i += 8)
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)), magnitude));
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

int32_t write_codes(const float* x, uint32_t n, float inverse, int8_t* dst, size_t step) {
  const __m256 by = _mm256_set1_ps(inverse);
  __m256i sum = _mm256_setzero_si256();
  for (uint32_t i = 0; i < n; i += 8) {
    const __m256i codes = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), by));
    sum = _mm256_add_epi32(sum, codes);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    const __m128i bytes = _mm_packs_epi16(words, words);
    int8_t* const at = dst + i / 4 * step;
    _mm_storeu_si32(at, bytes);
    if (n - i > 4) _mm_storeu_si32(at + step, _mm_shuffle_epi32(bytes, 1));
  }
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

#include "kernels/linear/quantize_rows.inl"

}  // namespace

void quantize_avx2(const QuantizeArgs& args) { quantize_rows(args); }

}  // namespace espalier
