#include "kernels/attention/kv_page.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace espalier {
namespace {

size_t round_up_64(size_t n) { return (n + 63) / 64 * 64; }

// Index of element d of a lane: K side by side by 16 lanes, V in rows.
size_t k_index(const KvLayout& l, uint32_t lane, uint32_t d) { return (size_t{lane / 16} * l.head_dim + d) * 16 + lane % 16; }
size_t v_index(const KvLayout& l, uint32_t lane, uint32_t d) { return size_t{lane} * l.head_dim + d; }

float absolute_max(const float* x, uint32_t n) {  // NaN if there is one
  float a = 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    const float v = std::fabs(x[i]);
    if (!(v <= a)) a = v;
    if (a != a) break;
  }
  return a;
}

struct Int8Scale {
  float scale, factor;  // value of a code; x · factor is rounded to a code
};
Int8Scale int8_scale(const float* x, uint32_t n) {
  const float a = absolute_max(x, n);
  if (!(a < std::numeric_limits<float>::infinity())) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
  if (a < 0x1p-100f) return {0.0f, 0.0f};
  return {a / 127.0f, 127.0f / a};
}

int8_t int8_code(float x, const Int8Scale& s) {
  if (s.factor == 0.0f) return 0;
  const float t = x * s.factor;  // |t| < 127.5
  return static_cast<int8_t>((t + 0x1.8p23f) - 0x1.8p23f);  // nearest even
}

template <typename Index>
void store_half(const KvLayout& l, uint16_t* dst, Index index, uint32_t lane, const float* x) {
  for (uint32_t d = 0; d < l.head_dim; ++d) dst[index(l, lane, d)] = f32_to_f16(x[d]);
}

template <typename Index>
void store_int8(const KvLayout& l, int8_t* dst, float* scales, Index index, uint32_t lane, const float* x) {
  const Int8Scale s = int8_scale(x, l.head_dim);
  scales[lane] = s.scale;
  for (uint32_t d = 0; d < l.head_dim; ++d) dst[index(l, lane, d)] = int8_code(x[d], s);
}

template <typename T, typename Index>
void copy_lane(const KvLayout& l, const T* src, uint32_t src_lane, T* dst, uint32_t dst_lane, Index index) {
  for (uint32_t d = 0; d < l.head_dim; ++d) dst[index(l, dst_lane, d)] = src[index(l, src_lane, d)];
}

template <typename T>
T* at(std::byte* block, size_t offset) {
  return reinterpret_cast<T*>(block + offset);
}
template <typename T>
const T* at(const std::byte* block, size_t offset) {
  return reinterpret_cast<const T*>(block + offset);
}

template <typename T>
void copy_elements(const KvLayout& l, const std::byte* src, uint32_t src_lane, std::byte* dst, uint32_t dst_lane, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) copy_lane(l, at<T>(src, 0), src_lane + i, at<T>(dst, 0), dst_lane + i, k_index);
  const size_t row = size_t{l.head_dim} * sizeof(T);
  std::memmove(dst + l.v_offset + dst_lane * row, src + l.v_offset + src_lane * row, n * row);
}

}  // namespace

KvLayout kv_layout(KvType type, uint32_t head_dim) {
  const uint32_t element = type == KvType::f16 ? 2 : 1;
  const size_t matrix = round_up_64(size_t{kKvPagePositions} * head_dim * element);
  const size_t scales = type == KvType::f16 ? 0 : kKvPagePositions * sizeof(float);
  return {type, head_dim, element, matrix, 2 * matrix, 2 * matrix + scales, 2 * matrix + 2 * scales};
}

void kv_store(const KvLayout& l, std::byte* block, uint32_t lane, const float* k, const float* v) {
  if (l.type == KvType::f16) {
    store_half(l, at<uint16_t>(block, 0), k_index, lane, k);
    store_half(l, at<uint16_t>(block, l.v_offset), v_index, lane, v);
  } else {
    store_int8(l, at<int8_t>(block, 0), at<float>(block, l.k_scale_offset), k_index, lane, k);
    store_int8(l, at<int8_t>(block, l.v_offset), at<float>(block, l.v_scale_offset), v_index, lane, v);
  }
}

void kv_load(const KvLayout& l, const std::byte* block, uint32_t lane, float* k, float* v) {
  for (uint32_t d = 0; d < l.head_dim; ++d) {
    if (l.type == KvType::f16) {
      k[d] = f16_to_f32(at<uint16_t>(block, 0)[k_index(l, lane, d)]);
      v[d] = f16_to_f32(at<uint16_t>(block, l.v_offset)[v_index(l, lane, d)]);
    } else {
      k[d] = static_cast<float>(at<int8_t>(block, 0)[k_index(l, lane, d)]) * at<float>(block, l.k_scale_offset)[lane];
      v[d] = static_cast<float>(at<int8_t>(block, l.v_offset)[v_index(l, lane, d)]) * at<float>(block, l.v_scale_offset)[lane];
    }
  }
}

void kv_copy(const KvLayout& l, const std::byte* src, uint32_t src_lane, std::byte* dst, uint32_t dst_lane, uint32_t n) {
  if (l.type == KvType::f16) return copy_elements<uint16_t>(l, src, src_lane, dst, dst_lane, n);
  copy_elements<int8_t>(l, src, src_lane, dst, dst_lane, n);
  std::memmove(dst + l.k_scale_offset + dst_lane * sizeof(float), src + l.k_scale_offset + src_lane * sizeof(float),
               n * sizeof(float));
  std::memmove(dst + l.v_scale_offset + dst_lane * sizeof(float), src + l.v_scale_offset + src_lane * sizeof(float),
               n * sizeof(float));
}

}  // namespace espalier
