// Matrix product with AVX-VNNI: 16 outputs by up to 6 rows in the 16 registers.
#include <immintrin.h>

#include "kernels/linear/linear.h"

namespace espalier {

void linear_avx_vnni(const LinearArgs& args);

namespace {

struct Simd {
  using Int = __m256i;
  using Float = __m256;
  using Codes = __m256i;
  static constexpr int kLanes = 8, kSubtracted = 0, kRowsMax = 6;
  static constexpr bool kUnpack4 = true, kPrefetch = true;
  static constexpr int vectors(int rows) { return rows == 1 ? 8 : rows <= 3 ? 4 : 2; }
  static constexpr bool sums_in_registers(int) { return false; }

  static Int zero() { return _mm256_setzero_si256(); }
  static Int spread(int32_t x) { return _mm256_set1_epi32(x); }
  static Float spread(float x) { return _mm256_set1_ps(x); }
  static __m256i bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static Codes ready(const uint8_t* p) { return bytes(p); }
  static void split(const uint8_t* p, Codes& low, Codes& high) {
    const __m256i mask = _mm256_set1_epi8(15), both = bytes(p);
    low = _mm256_and_si256(both, mask);
    high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
  }
  static void unpack(const uint8_t* p, uint8_t* low, uint8_t* high) {
    Codes l, h;
    split(p, l, h);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), l);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), h);
  }
  static Int dot(Int acc, Codes codes, Int x) { return _mm256_dpbusd_avx_epi32(acc, codes, x); }
  static Int dot4(Int acc, Codes low, Codes high, Int x0, Int x1) { return dot(dot(acc, low, x0), high, x1); }
  static Float to_float(Int x) { return _mm256_cvtepi32_ps(x); }
  static Float load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Float x) { _mm256_storeu_ps(p, x); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float scales(ScaleType type, const uint8_t* p, uint32_t index) {
    if (type == ScaleType::f32) return _mm256_castsi256_ps(bytes(p + index * 4));
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + index * 2));
    if (type == ScaleType::f16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
};

#include "kernels/linear/panel_loop.inl"

}  // namespace

void linear_avx_vnni(const LinearArgs& args) { run_panels(args); }

}  // namespace espalier
