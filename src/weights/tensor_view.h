// A tensor as it lies in a mapped file. A view: whoever made it (a reader, a checkpoint) owns the bytes.
//
// Invariants kept by every maker: the product of `shape` does not overflow, `data` has exactly the bytes that type and
// shape ask for. `data` may be unaligned (safetensors promises nothing): read through memcpy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/status.h"
#include "weights/storage_type.h"

namespace espalier {

struct TensorView {
  std::string name;
  StorageType type = StorageType::f32;
  std::vector<uint64_t> shape;  // row-major, outermost first (GGUF's order reversed)
  std::span<const std::byte> data;

  uint64_t elements() const;
};

inline constexpr size_t kMaxTensorDims = 8;

// Bytes of a tensor, or nothing: overflow, a row that is not whole blocks, a type of unknown layout. No dimension: one value.
std::optional<uint64_t> tensor_bytes(StorageType type, std::span<const uint64_t> shape);

std::string shape_text(std::span<const uint64_t> shape);  // "(2048, 512)"

// A vector of floats (f32, f16, bf16, widened exactly). Dimensions of size 1 are ignored on both sides.
// Errors name the tensor: "tensor X: expected (64) of f32, f16 or bf16, found (63) f32".
Result<std::vector<float>> read_vector(const TensorView& tensor, uint64_t size);
// All values in storage order, for small float tensors of any shape (a conv kernel). `shape` as above.
Result<std::vector<float>> read_floats(const TensorView& tensor, std::span<const uint64_t> shape);

}  // namespace espalier
