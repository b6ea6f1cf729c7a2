// Packed weight matrices: the form in which every linear layer, the embedding table and the head are held, on disk and in
// memory. The same bytes serve every kernel variant; they may be owned or lie in a mapped file.
//
// Goals      one pass over contiguous memory for a call; exact for the block formats people have; a scale next to its codes
// Non-goals  2-, 3-, 5- and 6-bit codes of their own (they are held as 4- or 8-bit codes with an offset: same values)
//
// Value of a weight, with code q (0..255 or 0..15), scale s and offset b of its output and group:
//     symmetric    w = s * (q - zero)    zero = 128 (8 bits) or 8 (4 bits)
//     with offset  w = s * q + b
//
// Layout. Outputs are cut into panels of 64 (the last one padded: scale 0, offset 0, code `zero` or 0), inputs into groups of
// 32, 64 or 128 (the last may be shorter). A panel is the stream of its groups; panels follow each other; everything is a
// multiple of 64 bytes. One group of a panel:
//     codes, 8 bits   for each 4 inputs: byte [o * 4 + i] = output o, input 4j + i                              (256 bytes)
//     codes, 4 bits   for each 8 inputs: byte [o * 4 + i] = input 8j + i (low nibble) and 8j + 4 + i (high)     (256 bytes)
//     scales          64 of the scale type, little endian
//     offsets         64 of the scale type, where the form has them
// Inputs are padded to 4 (8 bits) or 8 (4 bits) with code `zero` or 0; activations there are 0, so nothing is added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "espalier/status.h"

namespace espalier {

inline constexpr uint32_t kPanelOutputs = 64;
inline constexpr uint32_t kGroupMax = 128;
inline constexpr uint32_t kHadamardBlock = 64;
inline constexpr uint32_t kPackedDimMax = 1u << 24;  // of outputs and of inputs: products stay far below 2^63

enum class ScaleType : uint8_t { f16, bf16, f32 };

struct PackedForm {
  uint32_t rows = 0;  // outputs
  uint32_t cols = 0;  // inputs
  uint8_t bits = 8;   // 4 or 8
  uint8_t group = 128;
  ScaleType scale_type = ScaleType::f16;
  bool offset = false;
  uint8_t hadamard = 0;  // 0, or 64: inputs were rotated by block_hadamard, activations must be too. Needs cols % 64 == 0

  bool operator==(const PackedForm&) const = default;
};

// What is wrong with a form, in one sentence; ok if the kernels can run it. Check before anything else below.
Status validate(const PackedForm& form);

// Geometry. Requires: a valid form.
uint32_t panel_count(const PackedForm& form);
uint32_t group_count(const PackedForm& form);
size_t full_group_bytes(const PackedForm& form);  // codes, scales and offsets of a group that is not the last one
size_t panel_bytes(const PackedForm& form);
size_t packed_bytes(const PackedForm& form);
// Bits that a weight costs in memory, scales and padding included: 8.125 for int8 groups of 128 with fp16 scales.
double bits_per_weight(const PackedForm& form);
// "int8 g128 f16 sym had64", "int4 g32 f32 offset": one word a property, for dumps and messages.
std::string form_name(const PackedForm& form);

// Plain data; copies share the memory. Immutable once packed, so any number of threads may read it.
struct PackedMatrix {
  PackedForm form;
  const uint8_t* data = nullptr;      // packed_bytes(form); 64-byte alignment is faster, none is required
  std::shared_ptr<const void> owner;  // keeps `data` alive: heap memory or a file map
};

// A view of bytes that somebody else packed. Refuses an invalid form and a length other than packed_bytes(form).
Result<PackedMatrix> packed_view(const PackedForm& form, const uint8_t* data, size_t bytes, std::shared_ptr<const void> owner);

// Row `row` as the kernels see it: (q - zero) * s, or fma(q, s, b), in fp32. In the rotated basis if the form has Hadamard.
// dst (cols). Requires: row < rows.
void unpack_row(const PackedMatrix& matrix, uint32_t row, float* dst);

// The same in the basis of the source: unpack_row, then block_hadamard (its own inverse) where the form has it. This is the
// embedding lookup of a packed table.
void embed_row(const PackedMatrix& matrix, uint32_t row, float* dst);

// Walsh-Hadamard transform of every 64 elements, to the bit: stages 1, 2, 4 ... 32 of (a + b, a - b), then * 1/8.
// n is a multiple of 64. Symmetric and orthogonal, so applying it to both sides of a product leaves the product.
void block_hadamard(float* x, size_t n);

}  // namespace espalier
