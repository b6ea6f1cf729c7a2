// Activation quantisation with AVX-512.
#include <immintrin.h>

#include "kernels/linear/quantize.h"

namespace espalier {

void quantize_avx512(const QuantizeArgs& args);

namespace {

// One stage of the transform inside a register: `other` holds the partner of each lane, lanes of `upper` are second in pairs:
// a - b = a + (-b) there.
inline __m512 stage(__m512 x, __m512 other, __mmask16 upper) {
  const __m512i flipped =
      _mm512_mask_xor_epi32(_mm512_castps_si512(x), upper, _mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));
  return _mm512_add_ps(other, _mm512_castsi512_ps(flipped));
}

inline __m512 inner_stages(__m512 x) {
  x = stage(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
  x = stage(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
  x = stage(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
  return stage(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

void rotate(float* x, uint32_t n) {
  const __m512 eighth = _mm512_set1_ps(0.125f);
  for (uint32_t i = 0; i < n; i += 64) {
    const __m512 a = inner_stages(_mm512_load_ps(x + i)), b = inner_stages(_mm512_load_ps(x + i + 16));
    const __m512 c = inner_stages(_mm512_load_ps(x + i + 32)), d = inner_stages(_mm512_load_ps(x + i + 48));
    const __m512 ab = _mm512_add_ps(a, b), a_b = _mm512_sub_ps(a, b), cd = _mm512_add_ps(c, d), c_d = _mm512_sub_ps(c, d);
    _mm512_store_ps(x + i, _mm512_mul_ps(_mm512_add_ps(ab, cd), eighth));
    _mm512_store_ps(x + i + 16, _mm512_mul_ps(_mm512_add_ps(a_b, c_d), eighth));
    _mm512_store_ps(x + i + 32, _mm512_mul_ps(_mm512_sub_ps(ab, cd), eighth));
    _mm512_store_ps(x + i + 48, _mm512_mul_ps(_mm512_sub_ps(a_b, c_d), eighth));
  }
}

inline __mmask16 lanes(uint32_t left) { return static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1); }

uint32_t largest_bits(const float* x, uint32_t n) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for (uint32_t i = 0; i < n; i += 16)
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_maskz_loadu_epi32(lanes(n - i), x + i), magnitude));
  return static_cast<uint32_t>(_mm512_reduce_max_epu32(largest));
}

int32_t write_codes(const float* x, uint32_t n, float inverse, int8_t* dst, size_t step) {
  const __m512 by = _mm512_set1_ps(inverse);
  __m512i sum = _mm512_setzero_si512();
  for (uint32_t i = 0; i < n; i += 16) {
    const __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes(n - i), x + i), by));
    sum = _mm512_add_epi32(sum, codes);
    const __m128i bytes = _mm512_cvtepi32_epi8(codes);
    int8_t* const at = dst + i / 4 * step;
    if (step == 4 && n - i >= 16) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at), bytes);
      continue;
    }
    _mm_storeu_si32(at, bytes);
    if (n - i > 4) _mm_storeu_si32(at + step, _mm_shuffle_epi32(bytes, 1));
    if (n - i > 8) _mm_storeu_si32(at + 2 * step, _mm_shuffle_epi32(bytes, 2));
    if (n - i > 12) _mm_storeu_si32(at + 3 * step, _mm_shuffle_epi32(bytes, 3));
  }
  return _mm512_reduce_add_epi32(sum);
}

#include "kernels/linear/quantize_rows.inl"

}  // namespace

void quantize_avx512(const QuantizeArgs& args) { quantize_rows(args); }

}  // namespace espalier
