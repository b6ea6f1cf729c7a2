// Linear layer:  dst[r,o] = sum_i w[o,i] * x[r,i]  (+ bias[o])  (+ residual[r,o])
//
// Shapes    weights: a PackedMatrix; rows: a QuantizedRows made for its cols, group and Hadamard block; dst (n_rows, rows).
// Numerics  canonical (rules 2.4). For each row and output, groups ascending from f = 0:
//               S = sum code * x, exact (symmetric forms: codes minus zero point);  f = fma(float(S), ws * xs, f)
//               with offsets also  X = sum x, exact;                                f = fma(float(X), wb * xs, f)
//           then + bias, then + residual, one add each. The result does not depend on the other rows of the call, on tiles,
//           panels or threads. Non-finite activations give NaN in all outputs of their row.
// Memory    reads the panels, the rows, bias and residual; prefetches (never loads) past the panel range; writes exactly the
//           outputs of its panels. dst may be residual (same stride).
// Threads   the caller splits panels, in any way; a call writes only outputs of its own panels. `scratch` is per call.
// Cost      the floor is max(bytes of the panels / read bandwidth, n_rows * weights / int8 peak); linear_bench measures both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"
#include "kernels/linear/packed.h"
#include "kernels/linear/quantize.h"

namespace espalier {

// What a machine may change without changing a bit. Defaults are by instruction set; measurement replaces them.
struct LinearPlan {
  uint32_t narrow_rows_max = 64;  // calls up to this width stream the weights; wider ones are prefill
  uint32_t tile_rows_narrow = 6;  // 1 to 8 (variants use fewer where their registers end)
  uint32_t tile_rows_wide = 6;
  uint32_t chunk_inputs_narrow = 256;  // inputs of a panel that are served to all tiles before the next ones: L1
  uint32_t chunk_inputs_wide = 256;
  uint32_t row_major_min = 0;        // from this width on rows lie one by one, as tile registers read them (0: never),
  uint32_t row_major_cols_min = 0;  // where the matrix has so many inputs
  uint32_t unpack_rows_min = 13;  // int4: from this width on a chunk is unpacked once to bytes (0: never)

  uint32_t tile_rows(uint32_t n_rows, const PackedForm& form) const;  // 1, or one of the two, by width
};
LinearPlan default_linear_plan(Isa isa);
// True if every number is one that the kernels accept.
bool valid(const LinearPlan& plan);

struct LinearArgs {
  const PackedMatrix* weights;
  const QuantizedRows* rows;        // n_tiles made with plan->tile_rows(n_rows, form), or any other with at most 8 rows a tile
  uint32_t panel_begin, panel_end;  // panels of this call: outputs [64 * begin, min(64 * end, rows))
  float* dst;                       // (n_rows, rows)
  size_t dst_stride;                // floats
  const float* bias;                // (rows) or nullptr
  const float* residual;            // (n_rows, rows) or nullptr
  size_t residual_stride;           // floats
  void* scratch;                    // linear_scratch_bytes(n_rows), 64-byte aligned, not shared between threads
  const LinearPlan* plan;
};
size_t linear_scratch_bytes(uint32_t n_rows);

using LinearFn = void (*)(const LinearArgs&);
std::span<const Variant<LinearFn>> linear_variants();

}  // namespace espalier
