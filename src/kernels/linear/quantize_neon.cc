// Activation quantisation with NEON.
#include <arm_neon.h>

#include "kernels/linear/quantize.h"

namespace espalier {

void quantize_neon(const QuantizeArgs& args);

namespace {

void rotate(float* x, uint32_t n) {
  for (uint32_t block = 0; block < n; block += 64) {
    float* const v = x + block;
    for (uint32_t i = 0; i < 64; i += 8) {  // stages 1 and 2: vuzp takes first and second of each pair apart
      float32x4x2_t pairs = vuzpq_f32(vld1q_f32(v + i), vld1q_f32(v + i + 4));
      const float32x4_t sum = vaddq_f32(pairs.val[0], pairs.val[1]), difference = vsubq_f32(pairs.val[0], pairs.val[1]);
      pairs = vuzpq_f32(sum, difference);  // a b of stage 2: {s0 s2 d0 d2}, {s1 s3 d1 d3}
      const float32x4_t low = vaddq_f32(pairs.val[0], pairs.val[1]), high = vsubq_f32(pairs.val[0], pairs.val[1]);
      // low = {s01 s23 d01 d23}, high alike: back to memory order s01 d01 s01' d01' | s23 ...
      const float32x4x2_t l = vuzpq_f32(low, high);  // {s01 d01 hs01 hd01}, {s23 d23 hs23 hd23}
      vst1q_f32(v + i, l.val[0]);
      vst1q_f32(v + i + 4, l.val[1]);
    }
    for (uint32_t half = 4; half < 64; half *= 2)
      for (uint32_t i = 0; i < 64; i += 2 * half)
        for (uint32_t j = i; j < i + half; j += 4) {
          const float32x4_t a = vld1q_f32(v + j), b = vld1q_f32(v + j + half);
          vst1q_f32(v + j, vaddq_f32(a, b));
          vst1q_f32(v + j + half, vsubq_f32(a, b));
        }
    for (uint32_t i = 0; i < 64; i += 4) vst1q_f32(v + i, vmulq_n_f32(vld1q_f32(v + i), 0.125f));
  }
}

// The frame's buffer is zero past the row's end, so whole registers may be read.
uint32_t largest_bits(const float* x, uint32_t n) {
  uint32x4_t largest = vdupq_n_u32(0);
  for (uint32_t i = 0; i < n; i += 4)
    largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffffu)));
  return vmaxvq_u32(largest);
}

int32_t write_codes(const float* x, uint32_t n, float inverse, int8_t* dst, size_t step) {
  int32x4_t sum = vdupq_n_s32(0);
  for (uint32_t i = 0; i < n; i += 4) {
    const int32x4_t codes = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), inverse));
    sum = vaddq_s32(sum, codes);
    const int16x4_t words = vmovn_s32(codes);
    const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
    const int32_t four = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
    __builtin_memcpy(dst + i / 4 * step, &four, 4);
  }
  return vaddvq_s32(sum);
}

#include "kernels/linear/quantize_rows.inl"

}  // namespace

void quantize_neon(const QuantizeArgs& args) { quantize_rows(args); }

}  // namespace espalier
