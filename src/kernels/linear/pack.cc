#include "kernels/linear/pack.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "kernels/linear/packed_layout.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace espalier {
namespace {

// rne(x) for |x| <= 2^21, in one add: the sum's last bit has the value 1.
int round_to_int(float x) { return std::bit_cast<int32_t>(x + 12582912.0f) - 0x4b400000; }

float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

float narrowed(ScaleType type, float x) {
  switch (type) {
    case ScaleType::f16:
      return f16_to_f32(f32_to_f16(x));
    case ScaleType::bf16:
      return bf16_to_f32(f32_to_bf16(x));
    case ScaleType::f32:
      return x;
  }
  return x;
}

void write_scale(ScaleType type, float x, uint8_t* at, uint32_t index) {
  if (type == ScaleType::f32) {
    std::memcpy(at + index * 4, &x, 4);
    return;
  }
  const uint16_t h = type == ScaleType::f16 ? f32_to_f16(x) : f32_to_bf16(x);
  std::memcpy(at + index * 2, &h, 2);
}

// One output's codes and scales before they are spread over the panel.
struct RowBuffers {
  explicit RowBuffers(const PackedForm& form)
      : weights(form.cols), codes(form.cols), scales(group_count(form)), offsets(form.offset ? group_count(form) : 0) {}
  std::vector<float> weights;
  std::vector<uint8_t> codes;
  std::vector<float> scales, offsets;
};

struct GroupScale {
  float scale, offset;
};

GroupScale choose_scale(const PackedForm& form, const float* w, uint32_t n) {
  float low = w[0], high = w[0];
  for (uint32_t i = 1; i < n; i++) {
    low = w[i] < low ? w[i] : low;
    high = w[i] > high ? w[i] : high;
  }
  if (form.offset) {
    const float b = narrowed(form.scale_type, low);
    return {narrowed(form.scale_type, (high - b) / (form.bits == 8 ? 255.0f : 15.0f)), b};
  }
  if (form.bits == 8) return {narrowed(form.scale_type, (high > -low ? high : -low) / 127.0f), 0.0f};
  if (high != -low) return {narrowed(form.scale_type, (high > -low ? high : low) / -8.0f), 0.0f};
  uint32_t first = 0;  // both extremes are equally large: the first one decides
  while (std::fabs(w[first]) != high) first++;
  return {narrowed(form.scale_type, w[first] / -8.0f), 0.0f};
}

void quantize_group(const PackedForm& form, const float* w, uint32_t n, GroupScale g, uint8_t* codes) {
  const int zero = form.offset ? 0 : form.bits == 8 ? 128 : 8;
  if (g.scale == 0) {
    std::memset(codes, zero, n);
    return;
  }
  const float low = form.offset ? 0.0f : form.bits == 8 ? -127.0f : -8.0f;
  const float high = form.offset ? (form.bits == 8 ? 255.0f : 15.0f) : form.bits == 8 ? 127.0f : 7.0f;
  for (uint32_t i = 0; i < n; i++)
    codes[i] = static_cast<uint8_t>(round_to_int(clamp((w[i] - g.offset) / g.scale, low, high)) + zero);
}

void add_error(const PackedForm& form, const float* w, uint32_t n, GroupScale g, const uint8_t* codes, PackError& error) {
  const int zero = form.offset ? 0 : form.bits == 8 ? 128 : 8;
  for (uint32_t i = 0; i < n; i++) {
    const double held = double{g.scale} * (codes[i] - zero) + double{g.offset};
    error.error_squares += (held - w[i]) * (held - w[i]);
    error.weight_squares += double{w[i]} * w[i];
  }
}

Status in_row(uint32_t row, Status status) { return std::move(status).with_context("row " + std::to_string(row)); }

Status quantize_row(const PackedForm& form, RowBuffers& row, PackError& error) {
  for (uint32_t i = 0; i < form.cols; i++)
    if (!std::isfinite(row.weights[i])) return corrupt("weight " + std::to_string(i) + " is not a finite number");
  if (form.hadamard != 0) block_hadamard(row.weights.data(), form.cols);
  for (uint32_t g = 0, first = 0; first < form.cols; g++, first += form.group) {
    const uint32_t n = std::min<uint32_t>(form.group, form.cols - first);
    const float* const w = row.weights.data() + first;
    const GroupScale scale = choose_scale(form, w, n);
    if (!std::isfinite(scale.scale) || !std::isfinite(scale.offset))
      return unsupported("the weights from input " + std::to_string(first) +
                         " on are too large for the scale type; pack with fp32 or bf16 scales");
    quantize_group(form, w, n, scale, row.codes.data() + first);
    add_error(form, w, n, scale, row.codes.data() + first, error);
    row.scales[g] = scale.scale;
    if (form.offset) row.offsets[g] = scale.offset;
  }
  return {};
}

bool held_exactly(ScaleType type, float x) { return std::isfinite(x) && narrowed(type, x) == x; }

Status check_coded_row(const PackedForm& form, const RowBuffers& row) {
  if (form.bits == 4)
    for (uint32_t i = 0; i < form.cols; i++)
      if (row.codes[i] > 15)
        return corrupt("the code of input " + std::to_string(i) + " is " + std::to_string(row.codes[i]) +
                       ", and 4 bits end at 15");
  for (size_t g = 0; g < row.scales.size(); g++)
    if (!held_exactly(form.scale_type, row.scales[g]))
      return corrupt("the scale of group " + std::to_string(g) + " is not a finite number that the scale type holds");
  for (size_t g = 0; g < row.offsets.size(); g++)
    if (!held_exactly(form.scale_type, row.offsets[g]))
      return corrupt("the offset of group " + std::to_string(g) + " is not a finite number that the scale type holds");
  return {};
}

void spread_codes(uint32_t bits, const uint8_t* codes, uint32_t n, uint32_t o, uint8_t* group) {
  for (uint32_t i = 0; i < n; i++) {
    if (bits == 8) {
      group[i / 4 * 256 + o * 4 + i % 4] = codes[i];
    } else {
      uint8_t& both = group[i / 8 * 256 + o * 4 + i % 4];
      both = i % 8 < 4 ? static_cast<uint8_t>((both & 0xf0) | codes[i]) : static_cast<uint8_t>((both & 0x0f) | codes[i] << 4);
    }
  }
}

// The last group is padded with code `zero`; panel memory starts filled with it, so only real inputs are written.
void spread_row(const PackedForm& form, const PackedLayout& layout, const RowBuffers& row, uint32_t o, uint8_t* panel) {
  for (uint32_t g = 0, first = 0; first < form.cols; g++, first += form.group, panel += layout.group_bytes) {
    const uint32_t n = std::min<uint32_t>(form.group, form.cols - first);
    spread_codes(form.bits, row.codes.data() + first, n, o, panel);
    uint8_t* const tail = panel + layout.code_bytes(n);
    write_scale(form.scale_type, row.scales[g], tail, o);
    if (form.offset) write_scale(form.scale_type, row.offsets[g], tail + layout.scales_bytes, o);
  }
}

void clear_panel(const PackedForm& form, const PackedLayout& layout, uint8_t* panel) {
  const int byte = form.bits == 8 ? layout.zero : layout.zero * 17;
  for (uint32_t first = 0; first < form.cols; first += form.group, panel += layout.group_bytes) {
    const size_t codes = layout.code_bytes(std::min<uint32_t>(form.group, form.cols - first));
    std::memset(panel, byte, codes);
    std::memset(panel + codes, 0, layout.tail_bytes);
  }
}

template <typename MakeRow>
Status pack_each(const PackTarget& target, uint32_t first, uint32_t last, const MakeRow& make_row) {
  const PackedForm& form = target.form;
  const PackedLayout layout(form);
  RowBuffers row(form);
  for (uint32_t p = first; p < last; p++) {
    uint8_t* const panel = target.memory.get() + p * layout.panel_bytes;
    clear_panel(form, layout, panel);
    const uint32_t end = std::min(form.rows, (p + 1) * kPanelOutputs);
    for (uint32_t r = p * kPanelOutputs; r < end; r++) {
      if (Status status = make_row(r, row); !status.ok()) return in_row(r, std::move(status));
      spread_row(form, layout, row, r % kPanelOutputs, panel);
    }
  }
  return {};
}

template <typename Source, typename... Error>
Result<PackedMatrix> pack_whole(const Source& source, const PackedForm& form, Error... error) {
  ESPALIER_ASSIGN(PackTarget target, allocate_packed(form));
  ESPALIER_TRY(pack_panels(source, target, 0, panel_count(form), error...));
  return finish(std::move(target));
}

}  // namespace

void PackError::add(const PackError& more) {
  error_squares += more.error_squares;
  weight_squares += more.weight_squares;
}
double PackError::relative_rms() const { return weight_squares == 0 ? 0 : std::sqrt(error_squares / weight_squares); }

Result<PackTarget> allocate_packed(const PackedForm& form) {
  ESPALIER_TRY(validate(form));
  constexpr size_t kHugePage = size_t{1} << 21;
  const size_t bytes = packed_bytes(form);
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  auto* const memory = static_cast<uint8_t*>(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr)
    return Status(Code::out_of_memory, "a packed matrix of " + std::to_string(form.rows) + " x " + std::to_string(form.cols) +
                                           " needs " + std::to_string(bytes) + " bytes, and the system gave none");
#if defined(__linux__)
  if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  return PackTarget{form, std::shared_ptr<uint8_t>(memory, [](uint8_t* p) { std::free(p); })};
}

PackTarget packed_target(const PackedForm& form, std::shared_ptr<uint8_t> memory) { return {form, std::move(memory)}; }

Status pack_panels(const FloatRows& source, const PackTarget& target, uint32_t first, uint32_t last, PackError* error) {
  PackError sum;
  ESPALIER_TRY(pack_each(target, first, last, [&](uint32_t r, RowBuffers& row) -> Status {
    ESPALIER_TRY(source.read(r, row.weights));
    return quantize_row(target.form, row, sum);
  }));
  if (error != nullptr) error->add(sum);
  return {};
}

Status pack_panels(const CodedRows& source, const PackTarget& target, uint32_t first, uint32_t last) {
  if (target.form.hadamard != 0)
    return unsupported("rows that are already quantised cannot be rotated; pack them without the Hadamard block");
  return pack_each(target, first, last, [&](uint32_t r, RowBuffers& row) -> Status {
    ESPALIER_TRY(source.read(r, {row.codes, row.scales, row.offsets}));
    return check_coded_row(target.form, row);
  });
}

PackedMatrix finish(PackTarget target) {
  const uint8_t* const data = target.memory.get();
  return {target.form, data, std::move(target.memory)};
}

Result<PackedMatrix> pack(const FloatRows& source, const PackedForm& form, PackError* error) {
  return pack_whole(source, form, error);
}
Result<PackedMatrix> pack(const CodedRows& source, const PackedForm& form) { return pack_whole(source, form); }

}  // namespace espalier
