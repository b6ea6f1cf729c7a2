#include "weights/tensor_view.h"

#include <cstring>

#include "base/half.h"

namespace espalier {
namespace {

std::vector<uint64_t> without_ones(std::span<const uint64_t> shape) {
  std::vector<uint64_t> kept;
  for (uint64_t dim : shape)
    if (dim != 1) kept.push_back(dim);
  return kept;
}

template <typename Bits, typename Widen>
void widen(std::span<const std::byte> data, std::vector<float>& out, Widen to_float) {
  for (size_t i = 0; i < out.size(); ++i) {
    Bits bits;
    std::memcpy(&bits, data.data() + i * sizeof bits, sizeof bits);
    out[i] = to_float(bits);
  }
}

}  // namespace

uint64_t TensorView::elements() const {
  uint64_t n = 1;
  for (uint64_t dim : shape) n *= dim;
  return n;
}

std::optional<uint64_t> tensor_bytes(StorageType type, std::span<const uint64_t> shape) {
  const StorageInfo& layout = info(type);
  if (layout.block_bytes == 0) return {};
  const uint64_t row = shape.empty() ? 1 : shape.back();
  if (row % layout.block_values != 0) return {};
  uint64_t blocks = row / layout.block_values;
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    if (__builtin_mul_overflow(blocks, shape[i], &blocks)) return {};
  uint64_t elements, bytes;  // the count must fit too: elements() multiplies it out
  if (__builtin_mul_overflow(blocks, uint64_t{layout.block_values}, &elements)) return {};
  if (__builtin_mul_overflow(blocks, uint64_t{layout.block_bytes}, &bytes)) return {};
  return bytes;
}

std::string shape_text(std::span<const uint64_t> shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

Result<std::vector<float>> read_floats(const TensorView& tensor, std::span<const uint64_t> shape) {
  if (!info(tensor.type).is_float || without_ones(tensor.shape) != without_ones(shape)) {
    return corrupt("tensor " + tensor.name + ": expected " + shape_text(shape) + " of f32, f16 or bf16, found " +
                       shape_text(tensor.shape) + " " + std::string(name_of(tensor.type)),
                   tensor.name);
  }
  std::vector<float> out(tensor.elements());
  if (tensor.type == StorageType::f32)
    std::memcpy(out.data(), tensor.data.data(), tensor.data.size());
  else if (tensor.type == StorageType::f16)
    widen<uint16_t>(tensor.data, out, f16_to_f32);
  else
    widen<uint16_t>(tensor.data, out, bf16_to_f32);
  return out;
}

Result<std::vector<float>> read_vector(const TensorView& tensor, uint64_t size) {
  const uint64_t shape[] = {size};
  return read_floats(tensor, shape);
}

}  // namespace espalier
