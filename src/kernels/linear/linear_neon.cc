// Matrix product with NEON dot products of signed bytes (8-bit codes less 128).
#include <arm_neon.h>

#include "kernels/linear/linear.h"

namespace espalier {

void linear_neon(const LinearArgs& args);

namespace {

struct Simd {
  using Int = int32x4_t;
  using Float = float32x4_t;
  using Codes = int8x16_t;
  static constexpr int kLanes = 4, kSubtracted = 128, kRowsMax = 8;
  static constexpr bool kUnpack4 = false, kPrefetch = false;
  static constexpr int vectors(int rows) { return rows == 1 ? 16 : rows == 2 ? 8 : rows <= 5 ? 4 : 2; }
  static constexpr bool sums_in_registers(int) { return false; }

  static Int zero() { return vdupq_n_s32(0); }
  static Int spread(int32_t x) { return vdupq_n_s32(x); }
  static Float spread(float x) { return vdupq_n_f32(x); }
  static Codes ready(const uint8_t* p) { return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(128))); }
  static void split(const uint8_t* p, Codes& low, Codes& high) {
    const uint8x16_t both = vld1q_u8(p);
    low = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    high = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  }
  static Int dot(Int acc, Codes codes, Int x) { return vdotq_s32(acc, codes, vreinterpretq_s8_s32(x)); }
  static Int dot4(Int acc, Codes low, Codes high, Int x0, Int x1) { return dot(dot(acc, low, x0), high, x1); }
  static Float to_float(Int x) { return vcvtq_f32_s32(x); }
  static Float load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Float x) { vst1q_f32(p, x); }
  static Float mul(Float a, Float b) { return vmulq_f32(a, b); }
  static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  static Float scales(ScaleType type, const uint8_t* p, uint32_t index) {
    if (type == ScaleType::f32) return vreinterpretq_f32_u8(vld1q_u8(p + index * 4));
    const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(p + index * 2));
    if (type == ScaleType::f16) return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
  }
};

#include "kernels/linear/panel_loop.inl"

}  // namespace

void linear_neon(const LinearArgs& args) { run_panels(args); }

}  // namespace espalier
