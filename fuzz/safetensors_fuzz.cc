// safetensors and the packed container over the same bytes: what is accepted is read whole.
#include <cstdlib>
#include <cstring>

#include "weights/container.h"
#include "weights/safetensors.h"
#include "weights/source_matrix.h"

namespace {

// Each byte of each tensor lies in the file, and sizes agree with shapes.
void read_whole(std::span<const std::byte> file, const std::vector<espalier::TensorView>& tensors) {
  uint64_t total = 0;
  for (const espalier::TensorView& t : tensors) {
    if (espalier::tensor_bytes(t.type, t.shape) != t.data.size()) std::abort();
    if (!t.data.empty() && (t.data.data() < file.data() || t.data.data() + t.data.size() > file.data() + file.size())) std::abort();
    total += t.data.size();
    if (t.elements() > 1u << 16) continue;
    if (espalier::info(t.type).is_float) static_cast<void>(espalier::read_floats(t, t.shape).value());
    if (t.shape.size() == 2) static_cast<void>(espalier::SourceMatrix::make(t, t.shape[0], t.shape[1]));
  }
  if (total > file.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  if (espalier::Result<espalier::Safetensors> parsed = espalier::parse_safetensors(file); parsed.ok()) read_whole(file, parsed->tensors);
  // The length field is hard to guess together with the text, so the whole input also serves as the header.
  std::vector<std::byte> framed(8 + size + 64);
  const uint64_t length = size;
  std::memcpy(framed.data(), &length, 8);
  std::memcpy(framed.data() + 8, data, size);
  for (const size_t tail : {size_t{0}, size_t{4}, size_t{64}}) {
    const std::span<const std::byte> whole(framed.data(), 8 + size + tail);
    if (espalier::Result<espalier::Safetensors> parsed = espalier::parse_safetensors(whole); parsed.ok()) read_whole(whole, parsed->tensors);
  }
  if (espalier::Result<espalier::Container> parsed = espalier::parse_container(file); parsed.ok()) read_whole(file, parsed->tensors);
  static_cast<void>(espalier::verify_container(file));
  return 0;
}
