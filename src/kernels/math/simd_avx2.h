// 8 floats in a ymm. For variant sources built with AVX2, FMA and F16C; everything has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace espalier {
namespace {

using Vf = __m256;
using Vi = __m256i;
using Vm = __m256;
constexpr int kLanes = 8;

inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vf vload(const float* p) { return _mm256_loadu_ps(p); }
inline void vstore(float* p, Vf v) { _mm256_storeu_ps(p, v); }
inline Vf vload_n(const float* p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
inline void vstore_n(float* p, Vf v, int n) { _mm256_maskstore_ps(p, first_lanes(n), v); }
inline Vf vset(float x) { return _mm256_set1_ps(x); }
inline Vf vzero() { return _mm256_setzero_ps(); }
inline Vf vadd(Vf a, Vf b) { return _mm256_add_ps(a, b); }
inline Vf vsub(Vf a, Vf b) { return _mm256_sub_ps(a, b); }
inline Vf vmul(Vf a, Vf b) { return _mm256_mul_ps(a, b); }
inline Vf vdiv(Vf a, Vf b) { return _mm256_div_ps(a, b); }
inline Vf vsqrt(Vf a) { return _mm256_sqrt_ps(a); }
inline Vf vfma(Vf a, Vf b, Vf c) { return _mm256_fmadd_ps(a, b, c); }
inline Vf vfnma(Vf a, Vf b, Vf c) { return _mm256_fnmadd_ps(a, b, c); }
inline Vf vmax(Vf a, Vf b) { return _mm256_max_ps(a, b); }
inline Vf vmin(Vf a, Vf b) { return _mm256_min_ps(a, b); }
inline Vf vneg(Vf a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
inline Vf vabs(Vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline Vf vcopysign(Vf a, Vf sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(bit, a), _mm256_and_ps(bit, sign));
}
inline Vm vlt(Vf a, Vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline Vm veq(Vf a, Vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
inline Vm vge(Vf a, Vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
inline Vf vselect(Vm m, Vf a, Vf b) { return _mm256_blendv_ps(b, a, m); }
inline Vi viset(int32_t x) { return _mm256_set1_epi32(x); }
inline Vi viadd(Vi a, Vi b) { return _mm256_add_epi32(a, b); }
inline Vi visub(Vi a, Vi b) { return _mm256_sub_epi32(a, b); }
inline Vi viand(Vi a, Vi b) { return _mm256_and_si256(a, b); }
template <int k>
inline Vi vishl(Vi a) { return _mm256_slli_epi32(a, k); }
template <int k>
inline Vi visra(Vi a) { return _mm256_srai_epi32(a, k); }
inline Vi vbits(Vf a) { return _mm256_castps_si256(a); }
inline Vf vfrom_bits(Vi a) { return _mm256_castsi256_ps(a); }
inline Vf vi_to_f(Vi a) { return _mm256_cvtepi32_ps(a); }
inline Vf vscale(Vf x, Vf, Vf t) {  // two products, the first exact (canonical.h, scale_by_power)
  const Vi n = visub(vbits(t), viset(0x4b400000));
  const Vi first = visra<1>(n);
  const Vf a = vfrom_bits(vishl<23>(viadd(first, viset(127))));
  const Vf b = vfrom_bits(vishl<23>(viadd(visub(n, first), viset(127))));
  return vmul(vmul(x, a), b);
}

inline Vf vload_half(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Vf vload_half_n(const uint16_t* p, int n) {
  uint16_t lanes[8] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return vload_half(lanes);
}
inline Vf vload_i8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Vf vload_i8_n(const int8_t* p, int n) {
  int8_t lanes[8] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return vload_i8(lanes);
}

inline float sum16(const Vf (&s)[2]) {
  const __m256 a = _mm256_add_ps(s[0], s[1]);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

}  // namespace
}  // namespace espalier

#include "kernels/math/simd_math.h"
