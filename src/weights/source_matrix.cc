#include "weights/source_matrix.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "weights/blocks.h"

namespace espalier {
namespace {

std::string found(const TensorView& t) { return shape_text(t.shape) + " " + std::string(name_of(t.type)); }

Status wrong_shape(const TensorView& t, std::span<const uint64_t> expected, const std::string& of) {
  return corrupt("tensor " + t.name + ": expected " + shape_text(expected) + of + ", found " + found(t), t.name);
}

bool has_shape(const TensorView& t, std::span<const uint64_t> shape) {
  return std::vector<uint64_t>(shape.begin(), shape.end()) == t.shape;
}

float widen(StorageType type, const std::byte* at) {
  if (type == StorageType::f32) {
    float f;
    std::memcpy(&f, at, sizeof f);
    return f;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return type == StorageType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void widen_row(StorageType type, const std::byte* row, uint64_t n, float* out) {
  const uint64_t step = info(type).block_bytes;
  if (type == StorageType::f32) {
    std::memcpy(out, row, n * step);
  } else if (type == StorageType::bf16) {
    for (uint64_t i = 0; i < n; ++i) out[i] = widen(StorageType::bf16, row + 2 * i);
  } else {
    for (uint64_t i = 0; i < n; ++i) out[i] = widen(StorageType::f16, row + 2 * i);
  }
}

void scale_row(const std::byte* codes, float scale, uint64_t n, float* out) {
  for (uint64_t i = 0; i < n; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(codes[i]));
}

// Nothing in a file bounds a dimension that stands beside a zero.
Status check_not_empty(const std::string& name, uint64_t rows, uint64_t cols) {
  if (rows != 0 && cols != 0) return {};
  return corrupt("tensor " + name + ": expected a matrix with numbers in it, found " + shape_text(std::vector<uint64_t>{rows, cols}), name);
}

}  // namespace

std::string MatrixForm::text() const {
  if (kind == Kind::floats) return std::string(name_of(storage));
  if (kind == Kind::opaque && storage == StorageType::i8) return "int8, one scale an output";
  if (kind == Kind::opaque) return std::string(name_of(storage)) + ", no exact groups of 32 or more";
  const std::string origin = storage == StorageType::u32 ? "affine" : std::string(name_of(storage));
  return std::to_string(bits) + " bits, groups of " + std::to_string(group) + ", " +
         (has_offset ? "offset" : "symmetric") + ", " + std::string(name_of(scale_type)) + " scales (" + origin + ")";
}

Result<SourceMatrix> SourceMatrix::make(const TensorView& tensor, uint64_t rows, uint64_t cols) {
  const StorageInfo& layout = info(tensor.type);
  if (!layout.is_float && !layout.is_blocks) {
    return unsupported("tensor " + tensor.name + ": weights of type " + std::string(layout.name) +
                           " are not read; use a file with f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k or "
                           "q6_k weights",
                       tensor.name);
  }
  const uint64_t expected[] = {rows, cols};
  if (!has_shape(tensor, expected)) return wrong_shape(tensor, expected, "");
  ESPALIER_TRY(check_not_empty(tensor.name, rows, cols));
  ESP_CHECK(tensor_bytes(tensor.type, tensor.shape) == tensor.data.size());
  SourceMatrix m;
  m.name_ = tensor.name;
  m.rows_ = rows;
  m.cols_ = cols;
  m.data_ = tensor.data.data();
  m.row_bytes_ = tensor.data.size() / rows;
  m.form_.storage = tensor.type;
  if (layout.is_float) {
    m.form_.kind = MatrixForm::Kind::floats;
    m.form_.scale_type = tensor.type;
  } else if (tensor.type == StorageType::q6_k) {
    m.form_.kind = MatrixForm::Kind::opaque;
  } else {
    const BlockForm form = block_form(tensor.type);
    m.form_ = {MatrixForm::Kind::codes, tensor.type, form.bits, form.group, form.has_offset, form.zero,
               form.exact_in_f16 ? StorageType::f16 : StorageType::f32};
  }
  return m;
}

Result<SourceMatrix> SourceMatrix::make(const AffineTensors& tensors, uint64_t rows, uint64_t cols) {
  ESP_CHECK(tensors.weight != nullptr);
  const TensorView& w = *tensors.weight;
  if (tensors.scales == nullptr || tensors.biases == nullptr) {
    return corrupt("tensor " + w.name + ": affine quantisation needs scales and biases beside it, and they are missing", w.name);
  }
  const TensorView& s = *tensors.scales;
  const TensorView& b = *tensors.biases;
  const uint32_t bits = tensors.bits, group = tensors.group;
  if (bits < 2 || bits > 8 || (group != 32 && group != 64 && group != 128)) {
    return unsupported("tensor " + w.name + ": expected 2 to 8 bits in groups of 32, 64 or 128, found " +
                           std::to_string(bits) + " bits in groups of " + std::to_string(group),
                       w.name);
  }
  if (cols % group != 0) {
    return corrupt("tensor " + w.name + ": rows of " + std::to_string(cols) + " values are no whole groups of " +
                       std::to_string(group),
                   w.name);
  }
  ESPALIER_TRY(check_not_empty(w.name, rows, cols));
  const uint64_t words[] = {rows, cols / 32 * bits}, grid[] = {rows, cols / group};
  if (w.type != StorageType::u32 || !has_shape(w, words))
    return wrong_shape(w, words, " u32 (" + shape_text(std::vector<uint64_t>{rows, cols}) + " in " + std::to_string(bits) + " bits)");
  if (!info(s.type).is_float || !has_shape(s, grid)) return wrong_shape(s, grid, " of f32, f16 or bf16");
  if (b.type != s.type || !has_shape(b, grid)) return wrong_shape(b, grid, std::string(1, ' ').append(name_of(s.type)));
  for (const TensorView* t : {&w, &s, &b}) ESP_CHECK(tensor_bytes(t->type, t->shape) == t->data.size());
  SourceMatrix m;
  m.name_ = w.name;
  m.rows_ = rows;
  m.cols_ = cols;
  m.data_ = w.data.data();
  m.row_bytes_ = words[1] * 4;
  m.scales_ = s.data.data();
  m.biases_ = b.data.data();
  m.scale_row_bytes_ = grid[1] * info(s.type).block_bytes;
  m.form_ = {MatrixForm::Kind::codes, StorageType::u32, bits, group, true, 0, s.type};
  return m;
}

Result<SourceMatrix> SourceMatrix::make_row_scaled(const TensorView& codes, const TensorView& scales, uint64_t rows, uint64_t cols) {
  const uint64_t grid[] = {rows, cols}, column[] = {rows};
  if (codes.type != StorageType::i8 || !has_shape(codes, grid)) return wrong_shape(codes, grid, " i8");
  if (scales.type != StorageType::f16 || !has_shape(scales, column)) return wrong_shape(scales, column, " f16");
  ESPALIER_TRY(check_not_empty(codes.name, rows, cols));
  SourceMatrix m;
  m.name_ = codes.name;
  m.rows_ = rows;
  m.cols_ = cols;
  m.data_ = codes.data.data();
  m.row_bytes_ = cols;
  m.scales_ = scales.data.data();
  m.scale_row_bytes_ = info(StorageType::f16).block_bytes;
  m.form_.kind = MatrixForm::Kind::opaque;
  m.form_.storage = StorageType::i8;
  m.form_.scale_type = StorageType::f16;
  return m;
}

SourceMatrix SourceMatrix::with_row_order(std::vector<uint32_t> order) const {
  ESP_CHECK(order.size() == rows_);
  for (uint32_t& row : order) {
    ESP_CHECK(row < rows_);
    row = static_cast<uint32_t>(file_row(row));
  }
  SourceMatrix m = *this;
  m.order_ = std::make_shared<const std::vector<uint32_t>>(std::move(order));
  return m;
}

void SourceMatrix::codes(uint64_t row, uint8_t* codes, float* scale, float* offset) const {
  ESP_CHECK(form_.kind == MatrixForm::Kind::codes);
  ESP_CHECK(row < rows_);
  const uint64_t at = file_row(row);
  if (scales_ == nullptr) {
    block_codes(form_.storage, data_ + at * row_bytes_, cols_ / info(form_.storage).block_values, codes, scale, offset);
    return;
  }
  unpack_bit_string(data_ + at * row_bytes_, form_.bits, cols_, codes);
  widen_row(form_.scale_type, scales_ + at * scale_row_bytes_, groups(), scale);
  if (offset != nullptr) widen_row(form_.scale_type, biases_ + at * scale_row_bytes_, groups(), offset);
}

void SourceMatrix::dequantize_row(uint64_t row, float* out) const {
  std::vector<uint8_t> q(cols_);
  std::vector<float> scale(groups()), offset(groups());
  codes(row, q.data(), scale.data(), offset.data());
  for (uint64_t g = 0, i = 0; g < scale.size(); ++g) {
    const float s = scale[g], o = offset[g];
    if (form_.has_offset) {
      for (uint32_t j = 0; j < form_.group; ++j, ++i) out[i] = s * static_cast<float>(q[i]) + o;
    } else {
      for (uint32_t j = 0; j < form_.group; ++j, ++i)
        out[i] = s * static_cast<float>(static_cast<int>(q[i]) - static_cast<int>(form_.zero));
    }
  }
}

void SourceMatrix::dequantize(uint64_t row0, uint64_t n_rows, float* out) const {
  ESP_CHECK(row0 <= rows_ && n_rows <= rows_ - row0);
  for (uint64_t r = row0; r < row0 + n_rows; ++r, out += cols_) {
    const std::byte* row = data_ + file_row(r) * row_bytes_;
    if (form_.kind == MatrixForm::Kind::floats)
      widen_row(form_.storage, row, cols_, out);
    else if (form_.storage == StorageType::i8)
      scale_row(row, widen(StorageType::f16, scales_ + file_row(r) * scale_row_bytes_), cols_, out);
    else if (form_.kind == MatrixForm::Kind::opaque)
      dequantize_q6_k(row, cols_ / 256, out);
    else
      dequantize_row(r, out);
  }
}

std::vector<uint32_t> interleaved_row_order(uint32_t n_heads, uint32_t head_dim) {
  ESP_CHECK(head_dim % 2 == 0);
  std::vector<uint32_t> order(size_t{n_heads} * head_dim);
  const uint32_t half = head_dim / 2;
  for (uint32_t h = 0; h < n_heads; ++h)
    for (uint32_t i = 0; i < head_dim; ++i) order[h * head_dim + i] = h * head_dim + 2 * (i % half) + i / half;
  return order;
}

}  // namespace espalier
