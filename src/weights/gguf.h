// GGUF v3, little-endian.
//
//   "GGUF" u32 version | u64 tensor count | u64 metadata count | metadata: string key, u32 type, value
//   | tensor infos: string name, u32 n_dims, u64 dims (innermost first), u32 type, u64 offset | padding | tensor data
//   string = u64 length, bytes; array = u32 element type, u64 count, elements; data begins at a multiple of
//   general.alignment (default 32), as does each tensor.
//
// Refused by name: versions 1 and 2, big-endian files, more than 4 dimensions, products that overflow, tensors that
// overlap, leave the file or are not aligned, arrays nested more than 8 deep, names that repeat. Nothing is allocated
// from a count before the bytes that it promises are known to be there.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/value.h"
#include "espalier/status.h"
#include "weights/tensor_view.h"

namespace espalier {

inline constexpr uint64_t kGgufDimsMax = 4;
inline constexpr uint64_t kGgufKeysMax = 65'536;
inline constexpr uint64_t kGgufTensorsMax = 1'000'000;
inline constexpr uint64_t kGgufElementsMax = 4'194'304;  // of all metadata arrays together
inline constexpr uint64_t kGgufStringMax = 67'108'864;
inline constexpr uint64_t kGgufNameMax = 1024;  // of a metadata key or a tensor
inline constexpr uint64_t kGgufAlignmentMax = 65'536;

struct Gguf {
  Value metadata;                   // flat: {"general.architecture": "...", ...} in the file's order
  std::vector<TensorView> tensors;  // in the file's order; shape outermost first
  uint64_t header_bytes = 0;        // up to the first tensor byte
};

// The tensors point into `file`, which must outlive them. Errors do not name the file; callers add it.
// A file without tensors is allowed (vocabulary only).
Result<Gguf> parse_gguf(std::span<const std::byte> file);

// Parts of a set are called "<base>-%05d-of-%05d.gguf", counted from 1. False for any other name.
struct GgufSplitName {
  std::string base;
  uint32_t number = 0;  // 1-based
  uint32_t count = 0;
};
bool parse_split_name(std::string_view file_name, GgufSplitName* out);
std::string split_name(const std::string& base, uint32_t number, uint32_t count);

}  // namespace espalier
