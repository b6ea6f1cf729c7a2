// Activations of a linear layer as int8, one scale for each row and weight group:  x[r,i] ~ scale[r,g] * code[r,i]
//
// Shapes    src (n_rows, cols) fp32 with a row stride; a QuantizedRows for the layer's cols, group and Hadamard block.
// Numerics  canonical (rules 2.3), per row:
//           - with Hadamard: block_hadamard of the row first (packed.h; its own scratch, src is not changed);
//           - per group of the weights (a shorter last group is a group): a = max|x|. a < 2^-100: codes 0, scale 0. Else
//             code = rne(x * (127 / a)), scale = a / 127. Codes lie in -127..127; -128 never occurs;
//           - a group with an infinity or a NaN: codes 0, scale NaN. Every output of that row becomes NaN, and the head refuses
//           it.
// Memory    reads exactly cols floats of a row; writes only its own rows of the result.
// Threads   the caller splits rows; calls for different rows of one result may run at once.
// Cost      one read of src, a quarter of that written; it stays in L1/L2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"
#include "kernels/linear/packed.h"

namespace espalier {

// Quantised rows in the order the matrix kernels read them. Rows are dealt evenly over `n_tiles` tiles (the first
// n_rows % n_tiles have one row more); a tile of T rows that starts at row d holds, for 4 inputs at a time, the codes of its
// T rows: codes[d * stride + (i / 4 * T + t) * 4 + i % 4]. scales, sums and corrections: [d * groups + g * T + t].
// Inputs are padded with code 0 to a multiple of 8; behind them a row may have room that nobody reads. Plain data over memory of
// the caller.
struct QuantizedRows {
  uint32_t n_rows = 0;
  uint32_t cols = 0;
  uint32_t group = 0;
  uint32_t hadamard = 0;
  uint32_t n_tiles = 0;
  uint32_t padded_cols = 0;
  uint32_t stride = 0;  // codes of a row with its room
  uint32_t groups = 0;
  int8_t* codes = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;           // X: sum of the codes of a group, exact
  int32_t* corrections = nullptr;  // -128 * X
};

// Bytes that a view needs. n_rows may be 0. All tiles lie in one block: tiles on separate pages share cache sets.
size_t quantized_bytes(uint32_t n_rows, uint32_t cols, uint32_t group);
// Lays a view over memory (64-byte aligned, quantized_bytes). `tile_rows`: most rows of a tile, LinearPlan::tile_rows.
QuantizedRows quantized_view(void* memory, uint32_t n_rows, const PackedForm& weights, uint32_t tile_rows);

struct QuantizeArgs {
  const float* src;             // (n_rows, cols)
  size_t src_stride;            // floats
  const QuantizedRows* dst;     // its arrays are written
  uint32_t row_begin, row_end;  // rows of this call
};
using QuantizeFn = void (*)(const QuantizeArgs&);
std::span<const Variant<QuantizeFn>> quantize_variants();

}  // namespace espalier
