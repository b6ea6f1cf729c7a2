// Matrix product with AVX-512 VNNI: 64 outputs by up to 6 rows in registers.
#include <immintrin.h>

#include "kernels/linear/linear.h"

namespace espalier {

void linear_avx512(const LinearArgs& args);

namespace {

struct Simd {
  using Int = __m512i;
  using Float = __m512;
  using Codes = __m512i;
  static constexpr int kLanes = 16, kSubtracted = 0, kRowsMax = 6;
  static constexpr bool kUnpack4 = true, kPrefetch = true;
  static constexpr int vectors(int) { return 4; }
  // 4x3: 12 integer sums, 12 fp32 sums, 4 weights and a broadcast are 29 registers.
  static constexpr bool sums_in_registers(int rows) { return rows <= 3; }

  static Int zero() { return _mm512_setzero_si512(); }
  static Int spread(int32_t x) { return _mm512_set1_epi32(x); }
  static Float spread(float x) { return _mm512_set1_ps(x); }
  static Codes ready(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void split(const uint8_t* p, Codes& low, Codes& high) {
    const __m512i mask = _mm512_set1_epi8(15), both = _mm512_loadu_si512(p);
    low = _mm512_and_si512(both, mask);
    high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
  static void unpack(const uint8_t* p, uint8_t* low, uint8_t* high) {
    Codes l, h;
    split(p, l, h);
    _mm512_storeu_si512(low, l);
    _mm512_storeu_si512(high, h);
  }
  static Int dot(Int acc, Codes codes, Int x) { return _mm512_dpbusd_epi32(acc, codes, x); }
  static Int dot4(Int acc, Codes low, Codes high, Int x0, Int x1) {
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(acc, low, x0), high, x1);
  }
  static Float to_float(Int x) { return _mm512_cvtepi32_ps(x); }
  static Float load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Float x) { _mm512_storeu_ps(p, x); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float scales(ScaleType type, const uint8_t* p, uint32_t index) {
    if (type == ScaleType::f32) return _mm512_loadu_ps(p + index * 4);
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + index * 2));
    if (type == ScaleType::f16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
};

#include "kernels/linear/panel_loop.inl"

}  // namespace

void linear_avx512(const LinearArgs& args) { run_panels(args); }

}  // namespace espalier
