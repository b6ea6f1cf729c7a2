// One weight matrix (rows = outputs, cols = inputs) as it is in the file, whatever its format.
//
// A view over mapped bytes, cheap to copy, immutable, thread-safe; the checkpoint must outlive it. Shapes and sizes are
// checked when it is made, so reading cannot fail.
//
// Numerics  A matrix of form `codes` is, for group g of a row,
//             symmetric:    w = scale[g] * (code - zero)
//             with offset:  w = scale[g] * code + offset[g]
//           in fp32, product rounded first, never fused; `dequantize` gives these bits, which are those of the `gguf`
//           package and of MLX with its scales widened to fp32. All scales and offsets are exact in fp32 (the products d*s and
//           dmin*m of Q4_K and Q5_K are: 11 bits times 6).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/status.h"
#include "weights/tensor_view.h"

namespace espalier {

struct MatrixForm {
  enum class Kind {
    floats,  // f32, f16 or bf16: `storage` says which
    codes,   // groups that can be kept exactly: the fields below
    opaque,  // only `dequantize` (Q6_K: its groups of 16 are requantised; int8 with a scale for each row)
  };
  Kind kind = Kind::floats;
  StorageType storage = StorageType::f32;  // of the weight itself; u32 for MLX
  uint32_t bits = 0;                       // 2..8; codes are 0 .. 2^bits - 1
  uint32_t group = 0;                      // inputs that share a scale: 32, 64 or 128; divides cols
  bool has_offset = false;                 // false: symmetric round `zero`
  uint32_t zero = 0;                       // 8, 16 or 128
  StorageType scale_type = StorageType::f32;  // f16, bf16 or f32: narrowest type that holds scales and offsets exactly

  std::string text() const;  // "bf16", "4 bits, groups of 32, offset (q4_1)"
};

// MLX affine quantisation of one module.
struct AffineTensors {
  const TensorView* weight = nullptr;  // u32 (rows, cols * bits / 32)
  const TensorView* scales = nullptr;  // (rows, cols / group) f32, f16 or bf16
  const TensorView* biases = nullptr;  // as scales
  uint32_t bits = 4;
  uint32_t group = 64;
};

class SourceMatrix {
 public:
  // A tensor of floats or GGUF blocks; `tensor` must be (rows, cols). Dimensions of size 1 are not ignored here.
  // Refusals: "tensor X: expected (8, 64), found (8, 63) q4_0"; a type that is not read is named.
  static Result<SourceMatrix> make(const TensorView& tensor, uint64_t rows, uint64_t cols);
  static Result<SourceMatrix> make(const AffineTensors& tensors, uint64_t rows, uint64_t cols);
  // int8 codes (rows, cols) with one f16 scale for each row; read by `dequantize` alone.
  static Result<SourceMatrix> make_row_scaled(const TensorView& codes, const TensorView& scales, uint64_t rows, uint64_t cols);

  // The same matrix with row r read from row order[r] of this one. Requires: order.size() rows, each entry < rows().
  SourceMatrix with_row_order(std::vector<uint32_t> order) const;

  const std::string& name() const { return name_; }
  uint64_t rows() const { return rows_; }
  uint64_t cols() const { return cols_; }
  const MatrixForm& form() const { return form_; }
  uint64_t groups() const { return form_.group == 0 ? 0 : cols_ / form_.group; }  // of one row
  uint64_t file_bytes() const { return row_bytes_ * rows_ + (biases_ == nullptr ? 1 : 2) * scale_row_bytes_ * rows_; }

  // out (n_rows, cols), row-major. Requires: row0 + n_rows <= rows().
  void dequantize(uint64_t row0, uint64_t n_rows, float* out) const;
  // codes (cols), scale (groups), offset (groups; may be null when the form has none).
  // Requires: form().kind == codes, row < rows().
  void codes(uint64_t row, uint8_t* codes, float* scale, float* offset) const;

 private:
  SourceMatrix() = default;
  uint64_t file_row(uint64_t row) const { return order_ ? (*order_)[row] : row; }
  void dequantize_row(uint64_t row, float* out) const;

  std::string name_;
  uint64_t rows_ = 0, cols_ = 0;
  MatrixForm form_;
  const std::byte* data_ = nullptr;
  uint64_t row_bytes_ = 0;
  const std::byte* scales_ = nullptr;  // MLX only
  const std::byte* biases_ = nullptr;
  uint64_t scale_row_bytes_ = 0;
  std::shared_ptr<const std::vector<uint32_t>> order_;
};

// Row order that undoes the permutation of q and k rows in files made for interleaved rotation: file rows 2i and 2i + 1 of
// a head are rows i and i + head_dim/2.
// Requires: head_dim even.
std::vector<uint32_t> interleaved_row_order(uint32_t n_heads, uint32_t head_dim);

}  // namespace espalier
