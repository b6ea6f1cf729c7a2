#include "weights/blocks.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place");

float f16_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_f32(bits);
}

uint32_t u32_at(const uint8_t* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

void nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = packed[j] & 15;
    codes[j + 16] = packed[j] >> 4;
  }
}

void add_fifth_bits(uint32_t high, uint8_t* codes) {
  for (int j = 0; j < 32; ++j) codes[j] = static_cast<uint8_t>(codes[j] | ((high >> j & 1) << 4));
}

void q8_0_block(const uint8_t* block, uint8_t* codes) {
  for (int j = 0; j < 32; ++j) codes[j] = block[2 + j] ^ 0x80;  // int8 + 128
}

// The scale and the min of group g, 6 bits each.
struct ScaleMin {
  uint32_t scale, min;
};
ScaleMin scale_min(const uint8_t* s, int g) {
  if (g < 4) return {s[g] & 63u, s[g + 4] & 63u};
  return {(s[g + 4] & 15u) | (uint32_t{s[g - 4]} >> 6) << 4, (uint32_t{s[g + 4]} >> 4) | (uint32_t{s[g]} >> 6) << 4};
}

void k_block(const uint8_t* block, bool five_bits, uint8_t* codes, float* scale, float* offset) {
  const float d = f16_at(block), dmin = f16_at(block + 2);
  const uint8_t* high = block + 16;
  const uint8_t* low = block + (five_bits ? 48 : 16);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin sm = scale_min(block + 4, g);
    scale[g] = d * static_cast<float>(sm.scale);
    offset[g] = -(dmin * static_cast<float>(sm.min));
    const uint8_t* chunk = low + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      uint32_t code = chunk[l] >> shift & 15u;
      if (five_bits) code |= (high[l] >> g & 1u) << 4;
      codes[g * 32 + l] = static_cast<uint8_t>(code);
    }
  }
}

}  // namespace

BlockForm block_form(StorageType type) {
  switch (type) {
    case StorageType::q8_0: return {8, 32, false, 128, true};
    case StorageType::q4_0: return {4, 32, false, 8, true};
    case StorageType::q4_1: return {4, 32, true, 0, true};
    case StorageType::q5_0: return {5, 32, false, 16, true};
    case StorageType::q5_1: return {5, 32, true, 0, true};
    case StorageType::q4_k: return {4, 32, true, 0, false};
    case StorageType::q5_k: return {5, 32, true, 0, false};
    default: break;
  }
  ESP_CHECK(!"a block type with codes");
  return {};
}

void block_codes(StorageType type, const std::byte* row, uint64_t n_blocks, uint8_t* codes, float* scale, float* offset) {
  const StorageInfo& layout = info(type);
  const uint8_t* block = reinterpret_cast<const uint8_t*>(row);
  const uint32_t groups = layout.block_values / 32;
  for (uint64_t b = 0; b < n_blocks; ++b, block += layout.block_bytes, codes += layout.block_values, scale += groups) {
    float unused[8];
    float* off = offset != nullptr ? offset + b * groups : unused;
    if (type == StorageType::q4_k || type == StorageType::q5_k) {
      k_block(block, type == StorageType::q5_k, codes, scale, off);
      continue;
    }
    scale[0] = f16_at(block);
    switch (type) {
      case StorageType::q8_0: q8_0_block(block, codes); break;
      case StorageType::q4_0: nibbles(block + 2, codes); break;
      case StorageType::q4_1:
        off[0] = f16_at(block + 2);
        nibbles(block + 4, codes);
        break;
      case StorageType::q5_0:
        nibbles(block + 6, codes);
        add_fifth_bits(u32_at(block + 2), codes);
        break;
      case StorageType::q5_1:
        off[0] = f16_at(block + 2);
        nibbles(block + 8, codes);
        add_fifth_bits(u32_at(block + 4), codes);
        break;
      default: ESP_CHECK(!"a block type with codes");
    }
  }
}

void dequantize_q6_k(const std::byte* row, uint64_t n_blocks, float* out) {
  const uint8_t* block = reinterpret_cast<const uint8_t*>(row);
  for (uint64_t b = 0; b < n_blocks; ++b, block += 210, out += 256) {
    const float d = f16_at(block + 208);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* ql = block + 64 * half;
      const uint8_t* qh = block + 128 + 32 * half;
      const int8_t* scales = reinterpret_cast<const int8_t*>(block + 192 + 8 * half);
      for (int quarter = 0; quarter < 4; ++quarter) {
        for (int l = 0; l < 32; ++l) {
          const int low = ql[quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
          const int q = (low | (qh[l] >> (2 * quarter) & 3) << 4) - 32;
          const float s = d * static_cast<float>(scales[quarter * 2 + l / 16]);
          out[half * 128 + quarter * 32 + l] = s * static_cast<float>(q);
        }
      }
    }
  }
}

void unpack_bit_string(const std::byte* row, uint32_t bits, uint64_t n, uint8_t* codes) {
  const uint64_t mask = (1u << bits) - 1;
  for (uint64_t i = 0; i < n; i += 8, row += bits) {  // 8 codes are `bits` bytes
    uint64_t word = 0;
    std::memcpy(&word, row, bits);
    for (uint32_t j = 0; j < 8; ++j) codes[i + j] = static_cast<uint8_t>(word >> (j * bits) & mask);
  }
}

}  // namespace espalier
