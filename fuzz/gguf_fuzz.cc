// GGUF: whatever is accepted is read whole, as numbers and as codes.
#include <cstdlib>

#include "weights/gguf.h"
#include "weights/source_matrix.h"

namespace {

void read_matrix(const espalier::TensorView& t) {
  espalier::Result<espalier::SourceMatrix> m = espalier::SourceMatrix::make(t, t.shape[0], t.shape[1]);
  if (!m.ok()) return;
  std::vector<float> values(m->cols());
  for (uint64_t r = 0; r < m->rows(); ++r) {
    m->dequantize(r, 1, values.data());
    if (m->form().kind != espalier::MatrixForm::Kind::codes) continue;
    std::vector<uint8_t> codes(m->cols());
    std::vector<float> scale(m->groups()), offset(m->groups());
    m->codes(r, codes.data(), scale.data(), m->form().has_offset ? offset.data() : nullptr);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  espalier::Result<espalier::Gguf> parsed = espalier::parse_gguf(file);
  if (!parsed.ok()) return 0;
  for (const espalier::TensorView& t : parsed->tensors) {
    if (espalier::tensor_bytes(t.type, t.shape) != t.data.size()) std::abort();
    if (!t.data.empty() && (t.data.data() < file.data() || t.data.data() + t.data.size() > file.data() + file.size())) std::abort();
    if (t.shape.size() == 2 && t.elements() <= 1u << 16) read_matrix(t);
  }
  return 0;
}
