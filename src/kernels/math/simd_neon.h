// 4 floats in a q register (AArch64). Everything has internal linkage.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace espalier {
namespace {

using Vf = float32x4_t;
using Vi = int32x4_t;
using Vm = uint32x4_t;
constexpr int kLanes = 4;

inline Vf vload(const float* p) { return vld1q_f32(p); }
inline void vstore(float* p, Vf v) { vst1q_f32(p, v); }
inline Vf vload_n(const float* p, int n) {
  float lanes[4] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return vld1q_f32(lanes);
}
inline void vstore_n(float* p, Vf v, int n) {
  float lanes[4];
  vst1q_f32(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
inline Vf vset(float x) { return vdupq_n_f32(x); }
inline Vf vzero() { return vdupq_n_f32(0.0f); }
inline Vf vadd(Vf a, Vf b) { return vaddq_f32(a, b); }
inline Vf vsub(Vf a, Vf b) { return vsubq_f32(a, b); }
inline Vf vmul(Vf a, Vf b) { return vmulq_f32(a, b); }
inline Vf vdiv(Vf a, Vf b) { return vdivq_f32(a, b); }
inline Vf vsqrt(Vf a) { return vsqrtq_f32(a); }
inline Vf vfma(Vf a, Vf b, Vf c) { return vfmaq_f32(c, a, b); }
inline Vf vfnma(Vf a, Vf b, Vf c) { return vfmsq_f32(c, a, b); }
inline Vf vneg(Vf a) { return vnegq_f32(a); }
inline Vf vabs(Vf a) { return vabsq_f32(a); }
inline Vf vcopysign(Vf a, Vf sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, a); }
inline Vm vlt(Vf a, Vf b) { return vcltq_f32(a, b); }
inline Vm veq(Vf a, Vf b) { return vceqq_f32(a, b); }
inline Vm vge(Vf a, Vf b) { return vcgeq_f32(a, b); }
inline Vf vselect(Vm m, Vf a, Vf b) { return vbslq_f32(m, a, b); }
// By comparison and not vmaxq/vminq, which differ where a value is NaN.
inline Vf vmax(Vf a, Vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Vf vmin(Vf a, Vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline Vi viset(int32_t x) { return vdupq_n_s32(x); }
inline Vi viadd(Vi a, Vi b) { return vaddq_s32(a, b); }
inline Vi visub(Vi a, Vi b) { return vsubq_s32(a, b); }
inline Vi viand(Vi a, Vi b) { return vandq_s32(a, b); }
template <int k>
inline Vi vishl(Vi a) { return vshlq_n_s32(a, k); }
template <int k>
inline Vi visra(Vi a) { return vshrq_n_s32(a, k); }
inline Vi vbits(Vf a) { return vreinterpretq_s32_f32(a); }
inline Vf vfrom_bits(Vi a) { return vreinterpretq_f32_s32(a); }
inline Vf vi_to_f(Vi a) { return vcvtq_f32_s32(a); }
inline Vf vscale(Vf x, Vf, Vf t) {  // two products, the first exact (canonical.h, scale_by_power)
  const Vi n = visub(vbits(t), viset(0x4b400000));
  const Vi first = visra<1>(n);
  const Vf a = vfrom_bits(vishl<23>(viadd(first, viset(127))));
  const Vf b = vfrom_bits(vishl<23>(viadd(visub(n, first), viset(127))));
  return vmul(vmul(x, a), b);
}

inline Vf vload_half(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline Vf vload_half_n(const uint16_t* p, int n) {
  uint16_t lanes[4] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return vload_half(lanes);
}
inline Vf vload_i8_n(const int8_t* p, int n) {
  int32_t lanes[4] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return vcvtq_f32_s32(vld1q_s32(lanes));
}
inline Vf vload_i8(const int8_t* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, 4);
  const int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(word)));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

inline float sum16(const Vf (&s)[4]) {
  const Vf b = vaddq_f32(vaddq_f32(s[0], s[2]), vaddq_f32(s[1], s[3]));
  const float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
  return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}

}  // namespace
}  // namespace espalier

#include "kernels/math/simd_math.h"
