// safetensors: u64 header length (little-endian) | JSON header | tensor bytes.
//
// The one rule, on every path: the header has at most kSafetensorsHeaderMax bytes and ends inside the file; the tensors,
// sorted by offset, cover the rest of the file exactly once, without hole, overlap or spare bytes; each has the bytes
// that its dtype and shape ask for; names are unique. Anything else is refused with both sizes. A file with no tensor
// is refused as "no weights found".
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "espalier/status.h"
#include "weights/tensor_view.h"

namespace espalier {

inline constexpr uint64_t kSafetensorsHeaderMax = 100'000'000;  // the reference's own cap
inline constexpr uint64_t kSafetensorsTensorsMax = 1'000'000;

struct Safetensors {
  std::vector<TensorView> tensors;  // in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;
  uint64_t header_bytes = 0;  // length field and JSON: what the identity of a source hashes
};

// The tensors point into `file`, which must outlive them. Errors do not name the file; callers add it.
Result<Safetensors> parse_safetensors(std::span<const std::byte> file);

}  // namespace espalier
