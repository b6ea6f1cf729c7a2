// GGUF blocks to codes and scales: pure functions over the bytes of one row.
//
// Layouts (d, m, dmin are fp16, little-endian; element numbers count inside the block):
//   q8_0   d, 32 int8                         w = d*q                 code = q + 128, symmetric round 128
//   q4_0   d, 16 bytes                        w = d*(q - 8)           byte j: low nibble j, high nibble j + 16
//   q4_1   d, m, 16 bytes as q4_0             w = d*q + m
//   q5_0   d, u32 high bits, 16 bytes         w = d*(q - 16)          bit j of the word is bit 4 of element j
//   q5_1   d, m, u32 high bits, 16 bytes      w = d*q + m
//   q4_k   d, dmin, 12 bytes, 128 bytes       w = d*s*q - dmin*m      8 groups of 32, 6-bit s and m packed in the 12 bytes;
//                                             chunk c of 32 bytes: group 2c in low nibbles, 2c + 1 in high nibbles
//   q5_k   d, dmin, 12 bytes, 32 bytes high bits, 128 bytes; bit g of high byte l is bit 4 of element l of group g
//   q6_k   128 bytes low, 64 bytes high, 16 int8 scales, d            w = d*s*(q - 32), groups of 16
#pragma once

#include <cstddef>
#include <cstdint>

#include "weights/storage_type.h"

namespace espalier {

struct BlockForm {
  uint32_t bits, group;
  bool has_offset;
  uint32_t zero;
  bool exact_in_f16;  // scale and offset are stored as fp16
};

// Requires: info(type).is_blocks and type != q6_k.
BlockForm block_form(StorageType type);

// One row of `n_blocks` blocks. codes: one byte a value; scale, offset: one float a group (offset may be null without one).
// Requires: as block_form.
void block_codes(StorageType type, const std::byte* row, uint64_t n_blocks, uint8_t* codes, float* scale, float* offset);

// Requires: q6_k blocks. out: 256 floats a block.
void dequantize_q6_k(const std::byte* row, uint64_t n_blocks, float* out);

// A row of `n` codes of `bits` (2..8) as a little-endian bit string (MLX). Requires: n a multiple of 8.
void unpack_bit_string(const std::byte* row, uint32_t bits, uint64_t n, uint8_t* codes);

}  // namespace espalier
