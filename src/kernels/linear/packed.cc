#include "kernels/linear/packed.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/half.h"
#include "kernels/linear/packed_layout.h"

namespace espalier {

Status validate(const PackedForm& form) {
  const auto number = [](auto n) { return std::to_string(n); };
  if (form.rows == 0 || form.cols == 0 || form.rows > kPackedDimMax || form.cols > kPackedDimMax)
    return unsupported("a packed matrix of " + number(form.rows) + " outputs by " + number(form.cols) +
                       " inputs: both must be 1 to " + number(kPackedDimMax));
  if (form.bits != 4 && form.bits != 8)
    return unsupported("a packed matrix with codes of " + number(+form.bits) + " bits: only 4 and 8 are held");
  if (form.group != 32 && form.group != 64 && form.group != 128)
    return unsupported("a packed matrix in groups of " + number(+form.group) + ": only 32, 64 and 128 are held");
  if (form.hadamard != 0 && form.hadamard != kHadamardBlock)
    return unsupported("a Hadamard block of " + number(+form.hadamard) + ": only 64, or 0 for none");
  if (form.hadamard != 0 && form.cols % kHadamardBlock != 0)
    return unsupported("a Hadamard block of 64 over " + number(form.cols) + " inputs: they must be a multiple of 64");
  switch (form.scale_type) {
    case ScaleType::f16:
    case ScaleType::bf16:
    case ScaleType::f32:
      return {};
  }
  return unsupported("a packed matrix with an unknown scale type: only fp16, bf16 and fp32 are held");
}

uint32_t panel_count(const PackedForm& form) { return (form.rows + kPanelOutputs - 1) / kPanelOutputs; }
uint32_t group_count(const PackedForm& form) { return (form.cols + form.group - 1) / form.group; }
size_t full_group_bytes(const PackedForm& form) { return PackedLayout(form).group_bytes; }
size_t panel_bytes(const PackedForm& form) { return PackedLayout(form).panel_bytes; }
size_t packed_bytes(const PackedForm& form) { return panel_bytes(form) * panel_count(form); }
double bits_per_weight(const PackedForm& form) {
  return 8.0 * static_cast<double>(packed_bytes(form)) / (static_cast<double>(form.rows) * form.cols);
}

std::string form_name(const PackedForm& form) {
  const char* const scale = form.scale_type == ScaleType::f16 ? " f16" : form.scale_type == ScaleType::bf16 ? " bf16" : " f32";
  return "int" + std::to_string(+form.bits) + " g" + std::to_string(+form.group) + scale + (form.offset ? " offset" : " sym") +
         (form.hadamard != 0 ? " had64" : "");
}

Result<PackedMatrix> packed_view(const PackedForm& form, const uint8_t* data, size_t bytes, std::shared_ptr<const void> owner) {
  ESPALIER_TRY(validate(form));
  if (bytes != packed_bytes(form))
    return corrupt("a packed matrix of " + std::to_string(form.rows) + " x " + std::to_string(form.cols) + " (" +
                   form_name(form) + ") takes " + std::to_string(packed_bytes(form)) + " bytes, and " + std::to_string(bytes) +
                   " are there");
  return PackedMatrix{form, data, std::move(owner)};
}

float read_scale(ScaleType type, const uint8_t* at, uint32_t index) {
  if (type == ScaleType::f32) {
    float f;
    std::memcpy(&f, at + index * 4, 4);
    return f;
  }
  uint16_t h;
  std::memcpy(&h, at + index * 2, 2);
  return type == ScaleType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
}

void unpack_row(const PackedMatrix& matrix, uint32_t row, float* dst) {
  const PackedForm& form = matrix.form;
  const PackedLayout layout(form);
  const uint8_t* group = matrix.data + size_t{row / kPanelOutputs} * layout.panel_bytes;
  const uint32_t o = row % kPanelOutputs;
  for (uint32_t first = 0; first < form.cols; first += form.group, group += layout.group_bytes) {
    const uint32_t n = std::min<uint32_t>(form.group, form.cols - first);
    const uint8_t* const tail = group + layout.code_bytes(n);
    const float s = read_scale(form.scale_type, tail, o);
    const float b = form.offset ? read_scale(form.scale_type, tail + layout.scales_bytes, o) : 0.0f;
    for (uint32_t i = 0; i < n; i++) {
      const int code = layout.code(group, o, i);
      dst[first + i] = form.offset ? std::fma(static_cast<float>(code), s, b) : static_cast<float>(code - layout.zero) * s;
    }
  }
}

void embed_row(const PackedMatrix& matrix, uint32_t row, float* dst) {
  unpack_row(matrix, row, dst);
  if (matrix.form.hadamard != 0) block_hadamard(dst, matrix.form.cols);
}

void block_hadamard(float* x, size_t n) {
  for (size_t block = 0; block < n; block += kHadamardBlock) {
    float* const v = x + block;
    for (uint32_t half = 1; half < kHadamardBlock; half *= 2)
      for (uint32_t i = 0; i < kHadamardBlock; i += 2 * half)
        for (uint32_t j = i; j < i + half; j++) {
          const float a = v[j], b = v[j + half];
          v[j] = a + b;
          v[j + half] = a - b;
        }
    for (uint32_t i = 0; i < kHadamardBlock; i++) v[i] *= 0.125f;
  }
}

}  // namespace espalier
