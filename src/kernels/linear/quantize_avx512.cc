// Activation quantisation with AVX-512.
#include <immintrin.h>

#include "kernels/linear/quantize.h"

namespace espalier {

void quantize_avx512(const QuantizeArgs& args);

namespace {

// One stage of the transform inside a register: `other` holds the partner of each lane; -1 where a lane is second in its pair. The
// product with 1 or -1 is exact, so this is other + x or other - x, rounded once.
inline __m512 stage(__m512 x, __m512 other, __mmask16 upper) {
  return _mm512_fmadd_ps(x, _mm512_mask_blend_ps(upper, _mm512_set1_ps(1.0f), _mm512_set1_ps(-1.0f)), other);
}

inline __m512 inner_stages(__m512 x) {
  x = stage(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
  x = stage(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
  x = stage(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
  return stage(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

// 64 values in four registers.
inline void rotate_64(__m512* x) {
  const __m512 eighth = _mm512_set1_ps(0.125f);
  const __m512 a = inner_stages(x[0]), b = inner_stages(x[1]), c = inner_stages(x[2]), d = inner_stages(x[3]);
  const __m512 ab = _mm512_add_ps(a, b), a_b = _mm512_sub_ps(a, b), cd = _mm512_add_ps(c, d), c_d = _mm512_sub_ps(c, d);
  x[0] = _mm512_mul_ps(_mm512_add_ps(ab, cd), eighth);
  x[1] = _mm512_mul_ps(_mm512_add_ps(a_b, c_d), eighth);
  x[2] = _mm512_mul_ps(_mm512_sub_ps(ab, cd), eighth);
  x[3] = _mm512_mul_ps(_mm512_sub_ps(a_b, c_d), eighth);
}

void rotate(float* x, uint32_t n) {
  for (uint32_t i = 0; i < n; i += 64) {
    __m512 v[4] = {_mm512_load_ps(x + i), _mm512_load_ps(x + i + 16), _mm512_load_ps(x + i + 32), _mm512_load_ps(x + i + 48)};
    rotate_64(v);
    for (uint32_t r = 0; r < 4; r++) _mm512_store_ps(x + i + 16 * r, v[r]);
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

#define QUANTIZE_WHOLE_SPAN
struct Span {
  __m512 v[8];
};

inline void load_span(const float* src, bool rotated, Span& x) {
  for (int r = 0; r < 8; r++) x.v[r] = _mm512_loadu_ps(src + 16 * r);
  if (!rotated) return;
  rotate_64(x.v);
  rotate_64(x.v + 4);
}

inline uint32_t largest_bits(const Span& x) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i m[8];
  for (int r = 0; r < 8; r++) m[r] = _mm512_and_si512(_mm512_castps_si512(x.v[r]), magnitude);
  for (int n = 4; n > 0; n /= 2)
    for (int r = 0; r < n; r++) m[r] = _mm512_max_epu32(m[r], m[r + n]);
  return static_cast<uint32_t>(_mm512_reduce_max_epu32(m[0]));
}

inline int32_t write_codes(const Span& x, float inverse, int8_t* dst, size_t step) {
  const __m512 by = _mm512_set1_ps(inverse);
  __m512i sum = _mm512_setzero_si512();
  for (int r = 0; r < 8; r++) {
    const __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(x.v[r], by));
    sum = _mm512_add_epi32(sum, codes);
    const __m128i bytes = _mm512_cvtepi32_epi8(codes);
    int8_t* const at = dst + static_cast<size_t>(r) * 4 * step;
    if (step == 4) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at), bytes);
      continue;
    }
    _mm_storeu_si32(at, bytes);
    _mm_storeu_si32(at + step, _mm_shuffle_epi32(bytes, 1));
    _mm_storeu_si32(at + 2 * step, _mm_shuffle_epi32(bytes, 2));
    _mm_storeu_si32(at + 3 * step, _mm_shuffle_epi32(bytes, 3));
  }
  return _mm512_reduce_add_epi32(sum);
}

#include "kernels/linear/quantize_rows.inl"

}  // namespace

void quantize_avx512(const QuantizeArgs& args) { quantize_rows(args); }

}  // namespace espalier
