// 16 floats in a zmm. For variant sources built with AVX-512 F, DQ, BW, VL; everything has internal linkage.
#pragma once

// gcc 12 takes the deliberately undefined operand inside its own intrinsics for an uninitialized variable of the caller.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstdint>

namespace espalier {
namespace {

using Vf = __m512;
using Vi = __m512i;
using Vm = __mmask16;
constexpr int kLanes = 16;

inline __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
inline Vf vload(const float* p) { return _mm512_loadu_ps(p); }
inline void vstore(float* p, Vf v) { _mm512_storeu_ps(p, v); }
inline Vf vload_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void vstore_n(float* p, Vf v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
inline Vf vset(float x) { return _mm512_set1_ps(x); }
inline Vf vzero() { return _mm512_setzero_ps(); }
inline Vf vadd(Vf a, Vf b) { return _mm512_add_ps(a, b); }
inline Vf vsub(Vf a, Vf b) { return _mm512_sub_ps(a, b); }
inline Vf vmul(Vf a, Vf b) { return _mm512_mul_ps(a, b); }
inline Vf vdiv(Vf a, Vf b) { return _mm512_div_ps(a, b); }
inline Vf vsqrt(Vf a) { return _mm512_sqrt_ps(a); }
inline Vf vfma(Vf a, Vf b, Vf c) { return _mm512_fmadd_ps(a, b, c); }
inline Vf vfnma(Vf a, Vf b, Vf c) { return _mm512_fnmadd_ps(a, b, c); }
inline Vf vmax(Vf a, Vf b) { return _mm512_max_ps(a, b); }
inline Vf vmin(Vf a, Vf b) { return _mm512_min_ps(a, b); }
inline Vf vneg(Vf a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
inline Vf vabs(Vf a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
inline Vf vcopysign(Vf a, Vf sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(bit, a), _mm512_and_ps(bit, sign));
}
inline Vm vlt(Vf a, Vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Vm veq(Vf a, Vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline Vm vge(Vf a, Vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
inline Vf vselect(Vm m, Vf a, Vf b) { return _mm512_mask_blend_ps(m, b, a); }
inline Vi viset(int32_t x) { return _mm512_set1_epi32(x); }
inline Vi viadd(Vi a, Vi b) { return _mm512_add_epi32(a, b); }
inline Vi visub(Vi a, Vi b) { return _mm512_sub_epi32(a, b); }
inline Vi viand(Vi a, Vi b) { return _mm512_and_si512(a, b); }
template <int k>
inline Vi vishl(Vi a) { return _mm512_slli_epi32(a, k); }
template <int k>
inline Vi visra(Vi a) { return _mm512_srai_epi32(a, k); }
inline Vi vbits(Vf a) { return _mm512_castps_si512(a); }
inline Vf vfrom_bits(Vi a) { return _mm512_castsi512_ps(a); }
inline Vf vi_to_f(Vi a) { return _mm512_cvtepi32_ps(a); }
inline Vf vscale(Vf x, Vf n, Vf) { return _mm512_scalef_ps(x, n); }

inline Vf vload_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vf vload_half_n(const uint16_t* p, int n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
inline Vf vload_i8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Vf vload_i8_n(const int8_t* p, int n) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)));
}

inline float sum16(const Vf (&s)[1]) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(s[0]), _mm512_extractf32x8_ps(s[0], 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

}  // namespace
}  // namespace espalier

#include "kernels/math/simd_math.h"
