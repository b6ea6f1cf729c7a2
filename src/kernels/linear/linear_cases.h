// Cases that the test and the self-check share: random matrices and rows of every form, run by one variant, summed up by a
// hash. No libraries, so that the self-check builds for any machine.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/half.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/pack.h"

namespace espalier::cases {

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(next() >> 32) % n; }
  float uniform() { return static_cast<float>(static_cast<int32_t>(next() >> 40) - (1 << 23)) * 0x1p-23f; }  // [-1, 1)

 private:
  uint64_t state_;
};

enum class Kind { plain, extreme, tiny };  // extreme: largest codes and activations; tiny: subnormal scales and activations

struct Case {
  PackedForm form;
  uint32_t n_rows;
  Kind kind;
  LinearPlan plan;
  uint32_t panel_split;  // panels a call
  uint64_t seed;
  bool bias, residual;
};

inline float scale_of(const Case& c, Random& random) {
  const uint32_t bits = random.below(512);
  if (c.kind == Kind::tiny) return static_cast<float>(bits) * 0x1p-24f;  // fp16 subnormals, 0 among them
  return static_cast<float>(512 + bits) * (random.below(4) == 0 ? -0x1p-16f : 0x1p-16f);
}

// Every scale fits fp16; bf16 forms round it.
inline float held_scale(const Case& c, float scale) {
  return c.form.scale_type == ScaleType::bf16 ? bf16_to_f32(f32_to_bf16(scale)) : scale;
}

class CaseCodes final : public CodedRows {
 public:
  explicit CaseCodes(const Case& c) : case_(c) {}
  Status read(uint32_t row, const CodedRow& dst) const override {
    Random random(case_.seed * 1000003 + row);
    const uint32_t largest = case_.form.bits == 8 ? 255 : 15;
    for (uint8_t& code : dst.codes)
      code = static_cast<uint8_t>(case_.kind == Kind::extreme ? (row % 4 == 3 ? random.below(2) * largest : row % 2 * largest)
                                                              : random.below(largest + 1));
    for (float& s : dst.scales) s = held_scale(case_, scale_of(case_, random));
    for (float& b : dst.offsets) b = held_scale(case_, scale_of(case_, random));
    return {};
  }

 private:
  const Case& case_;
};

class CaseFloats final : public FloatRows {
 public:
  explicit CaseFloats(const Case& c) : case_(c) {}
  Status read(uint32_t row, std::span<float> dst) const override {
    Random random(case_.seed * 1000003 + row);
    const float size = case_.kind == Kind::tiny ? 0x1p-18f : 0.1f;
    for (float& w : dst) w = case_.kind == Kind::extreme ? (random.below(2) == 0 ? size : -size) : size * random.uniform();
    return {};
  }

 private:
  const Case& case_;
};

inline PackedMatrix make_matrix(const Case& c) {
  Result<PackedMatrix> m = c.form.hadamard != 0 ? pack(CaseFloats(c), c.form) : pack(CaseCodes(c), c.form);
  if (!m.ok()) std::abort();
  return std::move(m).value();
}

// (n_rows, cols). Some rows are zero, some hold groups that are.
inline std::vector<float> make_rows(const Case& c) {
  Random random(c.seed + 77);
  std::vector<float> x(size_t{c.n_rows} * c.form.cols);
  for (uint32_t r = 0; r < c.n_rows; r++)
    for (uint32_t i = 0; i < c.form.cols; i++) {
      const float u = random.uniform();
      float value = u * 3.0f;
      if (c.kind == Kind::extreme) value = r % 3 == 0 ? 2.5f : r % 3 == 1 ? -2.5f : u < 0 ? -2.5f : 2.5f;
      if (c.kind == Kind::tiny) value = r % 2 == 0 ? u * 0x1p-99f : u * 0x1p-120f;  // on both sides of the zero limit
      const bool empty = (r % 11 == 5) || (r % 7 == 3 && i / 32 % 3 == 1);
      x[size_t{r} * c.form.cols + i] = empty ? 0.0f : value;
    }
  return x;
}

struct Aligned {
  Aligned(Aligned&&) = default;
  explicit Aligned(size_t bytes) : memory(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), &std::free) {
    if (memory == nullptr) std::abort();
    std::memset(memory.get(), 0xa5, bytes);  // nothing may depend on what was there
  }
  std::unique_ptr<uint8_t, void (*)(void*)> memory;
};

struct Quantized {
  Quantized(const Case& c, Isa isa, const float* x)
      : memory(quantized_bytes(c.n_rows, c.form.cols, c.form.group)),
        rows(quantized_view(memory.memory.get(), c.n_rows, c.form, c.plan.tile_rows(c.n_rows, c.form))) {
    const QuantizeFn quantize = pick(quantize_variants(), isa);
    const uint32_t half = c.n_rows / 2;
    quantize({x, c.form.cols, &rows, half, c.n_rows});
    quantize({x, c.form.cols, &rows, 0, half});
  }
  Aligned memory;
  QuantizedRows rows;
};

// dst (n_rows, rows), made in calls of panel_split panels.
inline std::vector<float> run_linear(const Case& c, const PackedMatrix& weights, const QuantizedRows& rows, LinearFn linear) {
  std::vector<float> dst(size_t{c.n_rows} * c.form.rows, -7.0f), bias(c.form.rows), residual(dst.size());
  Random random(c.seed + 5);
  for (float& b : bias) b = random.uniform();
  for (float& r : residual) r = random.uniform();
  Aligned scratch(linear_scratch_bytes(c.n_rows));
  const uint32_t panels = panel_count(c.form);
  for (uint32_t p = 0; p < panels; p += c.panel_split)
    linear({&weights, &rows, p, std::min(panels, p + c.panel_split), dst.data(), c.form.rows, c.bias ? bias.data() : nullptr,
            c.residual ? residual.data() : nullptr, c.form.rows, scratch.memory.get(), &c.plan});
  return dst;
}

// Calls visit(case) for every combination of form, inputs, outputs and rows of the grid; `stride` thins it out.
template <typename Visit>
void for_each_case(uint32_t stride, const Visit& visit) {
  constexpr uint32_t kCols[] = {4, 32, 64, 100, 128, 192, 576, 1536, 2048}, kRows[] = {1, 63, 64, 65, 192};
  constexpr uint32_t kChunks[] = {128, 256, 512, 2048};
  uint32_t i = 0;
  const auto one = [&](uint32_t form, uint32_t cols, uint32_t rows, uint32_t n_rows) {
    Case c{};
    c.form = {rows,
              cols,
              static_cast<uint8_t>(form & 1 ? 4 : 8),
              static_cast<uint8_t>(32u << form / 2 % 3),
              static_cast<ScaleType>((i + form) % 3),
              (form / 6 & 1) != 0,
              static_cast<uint8_t>((form / 12 & 1) != 0 && cols % 64 == 0 ? 64 : 0)};
    c.n_rows = n_rows;
    c.kind = static_cast<Kind>(i % 5 == 3 ? 1 : i % 5 == 4 ? 2 : 0);
    c.plan = default_linear_plan(static_cast<Isa>(i % 4));
    c.plan.tile_rows_narrow = 1 + i % 8;
    c.plan.row_major_min = i % 2 == 0 ? 2 : 0;
    c.plan.row_major_cols_min = 0;
    c.plan.chunk_inputs_narrow = kChunks[i / 3 % 4];
    c.plan.unpack_rows_min = i % 3 == 0 ? 1 : 65;
    c.panel_split = 1 + i % 3;
    c.seed = i;
    c.bias = i % 2 == 0;
    c.residual = i % 3 == 0;
    if (i++ % stride == 0) visit(c);
  };
  for (uint32_t form = 0; form < 24; form++) {
    for (uint32_t cols : kCols)
      for (uint32_t rows : kRows) one(form, cols, rows, 1 + (i * 37) % 64);
    for (uint32_t n = 1; n <= 64; n++) one(form, 192, 64, n);
    one(form, 100, 65, 100);
    one(form, 576, 65, 512);
  }
}

inline void add_to_hash(uint64_t& hash, const void* data, size_t bytes) {  // FNV-1a
  const auto* p = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
}

}  // namespace espalier::cases
