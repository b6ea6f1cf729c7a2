// The arithmetic of the packed layout (packed.h), for the files of this folder that read or write it byte by byte.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/linear/packed.h"

namespace espalier {

struct PackedLayout {
  explicit PackedLayout(const PackedForm& form)
      : bits(form.bits),
        zero(form.offset      ? 0
             : form.bits == 8 ? 128
                              : 8),
        scales_bytes(kPanelOutputs * (form.scale_type == ScaleType::f32 ? 4 : 2)),
        tail_bytes(scales_bytes * (form.offset ? 2 : 1)),
        group_bytes(code_bytes(form.group) + tail_bytes) {
    const uint32_t full = form.cols / form.group, last = form.cols % form.group;
    panel_bytes = full * group_bytes + (last == 0 ? 0 : code_bytes(last) + tail_bytes);
  }

  // Codes of a group of n inputs.
  size_t code_bytes(uint32_t n) const {
    const uint32_t per_block = bits == 8 ? 4 : 8;
    return size_t{(n + per_block - 1) / per_block} * kPanelOutputs * 4;
  }
  // Code of output o and input i, counted inside the panel and the group.
  int code(const uint8_t* group, uint32_t o, uint32_t i) const {
    if (bits == 8) return group[i / 4 * 256 + o * 4 + i % 4];
    const uint8_t both = group[i / 8 * 256 + o * 4 + i % 4];
    return i % 8 < 4 ? both & 15 : both >> 4;
  }

  uint32_t bits;
  int zero;  // code of the value 0 in a symmetric form; 0 with offsets
  size_t scales_bytes, tail_bytes, group_bytes, panel_bytes = 0;
};

// Scale or offset `index` of 64, widened exactly.
float read_scale(ScaleType type, const uint8_t* at, uint32_t index);

}  // namespace espalier
