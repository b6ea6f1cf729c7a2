// Matrix product with AVX2: the sign moves from the weight to the activation, so that 16-bit sums of two products
// end at 2 * 128 * 127 = 32,512 and do not saturate; 4-bit codes need no sign and add four products.
#include <immintrin.h>

#include "kernels/linear/linear.h"

namespace espalier {

void linear_avx2(const LinearArgs& args);

namespace {

struct Simd {
  using Int = __m256i;
  using Float = __m256;
  struct Codes {
    __m256i magnitude, value;  // |w| and w of 8-bit codes made signed; 4-bit codes use magnitude alone
  };
  static constexpr int kLanes = 8, kSubtracted = 128, kRowsMax = 8;
  static constexpr bool kUnpack4 = false, kPrefetch = true;
  static constexpr int vectors(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 ? 2 : 1; }
  static constexpr bool sums_in_registers(int) { return false; }

  static Int zero() { return _mm256_setzero_si256(); }
  static Int spread(int32_t x) { return _mm256_set1_epi32(x); }
  static Float spread(float x) { return _mm256_set1_ps(x); }
  static __m256i bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static Codes ready(const uint8_t* p) {
    const __m256i value = _mm256_xor_si256(bytes(p), _mm256_set1_epi8(-128));
    return {_mm256_abs_epi8(value), value};
  }
  static void split(const uint8_t* p, Codes& low, Codes& high) {
    const __m256i mask = _mm256_set1_epi8(15), both = bytes(p);
    low = {_mm256_and_si256(both, mask), both};
    high = {_mm256_and_si256(_mm256_srli_epi16(both, 4), mask), both};
  }
  static Int add_pairs(Int acc, __m256i words) { return _mm256_add_epi32(acc, _mm256_madd_epi16(words, _mm256_set1_epi16(1))); }
  static Int dot(Int acc, const Codes& codes, Int x) {
    return add_pairs(acc, _mm256_maddubs_epi16(codes.magnitude, _mm256_sign_epi8(x, codes.value)));
  }
  static Int dot4(Int acc, const Codes& low, const Codes& high, Int x0, Int x1) {
    return add_pairs(acc, _mm256_add_epi16(_mm256_maddubs_epi16(low.magnitude, x0), _mm256_maddubs_epi16(high.magnitude, x1)));
  }
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

void linear_avx2(const LinearArgs& args) { run_panels(args); }

}  // namespace espalier
