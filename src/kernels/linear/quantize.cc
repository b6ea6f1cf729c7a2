#include "kernels/linear/quantize.h"

#include "base/check.h"

namespace espalier {

void quantize_portable(const QuantizeArgs& args);
#if defined(__x86_64__)
void quantize_avx2(const QuantizeArgs& args);
void quantize_avx512(const QuantizeArgs& args);
#elif defined(__aarch64__)
void quantize_neon(const QuantizeArgs& args);
#endif

namespace {

constexpr Variant<QuantizeFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, quantize_avx512},
    {Isa::avx2, quantize_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, quantize_neon},
#endif
    {Isa::portable, quantize_portable},
};

constexpr size_t kLine = 64;
size_t to_line(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
uint32_t padded(uint32_t cols) { return (cols + 7) / 8 * 8; }
// Rows an even number of cache lines apart meet in few sets of L1.
uint32_t stride_of(uint32_t cols) { return padded(cols) % (2 * kLine) == 0 ? padded(cols) + static_cast<uint32_t>(kLine) : padded(cols); }
uint32_t groups_of(uint32_t cols, uint32_t group) { return (cols + group - 1) / group; }

}  // namespace

std::span<const Variant<QuantizeFn>> quantize_variants() { return kVariants; }

size_t quantized_bytes(uint32_t n_rows, uint32_t cols, uint32_t group) {
  return to_line(size_t{n_rows} * stride_of(cols)) + 3 * to_line(size_t{n_rows} * groups_of(cols, group) * sizeof(float));
}

QuantizedRows quantized_view(void* memory, uint32_t n_rows, const PackedForm& weights, uint32_t tile_rows) {
  ESP_CHECK(tile_rows > 0);
  QuantizedRows v;
  v.n_rows = n_rows;
  v.cols = weights.cols;
  v.group = weights.group;
  v.hadamard = weights.hadamard;
  v.n_tiles = (n_rows + tile_rows - 1) / tile_rows;
  v.padded_cols = padded(v.cols);
  v.stride = stride_of(v.cols);
  v.groups = groups_of(v.cols, v.group);
  const size_t array = to_line(size_t{n_rows} * v.groups * sizeof(float));
  auto* at = static_cast<uint8_t*>(memory);
  v.codes = reinterpret_cast<int8_t*>(at);
  at += to_line(size_t{n_rows} * v.stride);
  v.scales = reinterpret_cast<float*>(at);
  v.sums = reinterpret_cast<float*>(at + array);
  v.corrections = reinterpret_cast<int32_t*>(at + 2 * array);
  return v;
}

}  // namespace espalier
