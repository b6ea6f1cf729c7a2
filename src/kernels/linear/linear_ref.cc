// Matrix product, portable: the definition of its bits.
#include <cmath>
#include <cstring>

#include "kernels/linear/linear.h"
#include "kernels/linear/packed_layout.h"

namespace espalier {
namespace {

// Where a row lies among the quantised ones.
struct RowCodes {
  const int8_t* codes;
  size_t first_scale;
  uint32_t step;  // rows of its tile
};

RowCodes find_row(const QuantizedRows& q, uint32_t row) {
  const uint32_t base = q.n_rows / q.n_tiles, more = q.n_rows % q.n_tiles;
  const uint32_t tile = row < more * (base + 1) ? row / (base + 1) : (row - more) / base;
  const size_t first = size_t{tile} * base + std::min(tile, more);
  const size_t lane = row - first;
  return {q.codes + first * q.stride + lane * 4, first * q.groups + lane, base + (tile < more ? 1 : 0)};
}

// sums[o] += code * x over one group of n inputs. x: 4 codes at a time, `step` bytes apart.
void add_products(const PackedLayout& layout, const uint8_t* codes, uint32_t n, const int8_t* x, size_t step, int32_t* sums) {
  for (uint32_t i = 0; i < n; i += 4, x += step) {
    const int32_t x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    const uint8_t* const w = layout.bits == 8 ? codes + i / 4 * 256 : codes + i / 8 * 256;
    const uint32_t shift = layout.bits == 8 || i % 8 == 0 ? 0 : 4, mask = layout.bits == 8 ? 255 : 15;
    for (uint32_t o = 0; o < kPanelOutputs; o++) {
      const auto code = [&](uint32_t k) { return static_cast<int32_t>(w[o * 4 + k] >> shift & mask); };
      sums[o] += code(0) * x0 + code(1) * x1 + code(2) * x2 + code(3) * x3;
    }
  }
}

// One row by one panel, before bias and residual.
void row_by_panel(const LinearArgs& args, const PackedLayout& layout, const uint8_t* group, const RowCodes& row, float* out) {
  const PackedForm& form = args.weights->form;
  const QuantizedRows& q = *args.rows;
  std::memset(out, 0, kPanelOutputs * sizeof(float));
  size_t at = row.first_scale;
  for (uint32_t first = 0; first < form.cols; first += form.group, group += layout.group_bytes, at += row.step) {
    const uint32_t n = std::min<uint32_t>(form.group, form.cols - first);
    int32_t sums[kPanelOutputs] = {};
    add_products(layout, group, n, row.codes + size_t{first} * row.step, size_t{row.step} * 4, sums);
    const int32_t zero_part = layout.zero * (q.corrections[at] / 128);
    const uint8_t* const tail = group + layout.code_bytes(n);
    for (uint32_t o = 0; o < kPanelOutputs; o++) {
      const float ws = read_scale(form.scale_type, tail, o);
      out[o] = std::fma(static_cast<float>(sums[o] + zero_part), ws * q.scales[at], out[o]);
      if (!form.offset) continue;
      const float wb = read_scale(form.scale_type, tail + layout.scales_bytes, o);
      out[o] = std::fma(q.sums[at], wb * q.scales[at], out[o]);
    }
  }
}

}  // namespace

void linear_portable(const LinearArgs& args) {
  const PackedForm& form = args.weights->form;
  const PackedLayout layout(form);
  for (uint32_t p = args.panel_begin; p < args.panel_end; p++) {
    const uint8_t* const panel = args.weights->data + p * layout.panel_bytes;
    const uint32_t first = p * kPanelOutputs, n = std::min(kPanelOutputs, form.rows - first);
    for (uint32_t r = 0; r < args.rows->n_rows; r++) {
      float out[kPanelOutputs];
      row_by_panel(args, layout, panel, find_row(*args.rows, r), out);
      for (uint32_t o = 0; o < n; o++) {
        float f = out[o];
        if (args.bias != nullptr) f += args.bias[first + o];
        if (args.residual != nullptr) f += args.residual[r * args.residual_stride + first + o];
        args.dst[r * args.dst_stride + first + o] = f;
      }
    }
  }
}

}  // namespace espalier
