// Matrix product with AMX: 16 rows by 64 outputs in four tile registers, exact int32 sums, so the bits of every other variant.
//
// Plan. As panel_loop.inl: a chunk of a panel stays in L1 and is served to all tiles of rows while the lines of the next chunk
// are prefetched. A step is one group for one tile of rows: the tile unit sums group g while the vector unit scales group g - 1,
// whose sums were stored to memory. The sums of g are stored behind that: stores in flight would hold up every load whose address
// has the same low 12 bits. Narrow calls and forms whose groups are no whole tiles take the AVX-512 loop.
#include <immintrin.h>

#include <cstring>

#include "kernels/linear/linear.h"

namespace espalier {

void linear_amx(const LinearArgs& args);
void linear_avx512(const LinearArgs& args);

namespace {

constexpr uint32_t kTileRows = 16, kLine = 64, kBlockBytes = 256;  // a block: 64 outputs x 4 bytes

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Registers: 0 to 3 sums, 4 activations, 5 and 6 weights.
void configure(uint32_t rows, uint32_t inputs) {
  TileConfig c;
  for (int t = 0; t < 4; t++) c.rows[t] = static_cast<uint8_t>(rows), c.row_bytes[t] = 64;
  c.rows[4] = static_cast<uint8_t>(rows), c.row_bytes[4] = static_cast<uint16_t>(inputs);
  for (int t = 5; t < 7; t++) c.rows[t] = static_cast<uint8_t>(inputs / 4), c.row_bytes[t] = 64;
  _tile_loadconfig(&c);
}

struct Loop {
  const LinearArgs& args;
  const PackedForm& form;
  const QuantizedRows& rows;
  uint32_t groups, chunk_groups, inputs;  // inputs: of one tile of activations
  uint32_t n_tiles, tile_rows;
  uint32_t scales_bytes, tail_bytes;
  size_t group_bytes, panel_bytes;
  float* sums;        // (n_tiles, 16, 64)
  uint8_t* unpacked;  // 4-bit forms: the codes of a chunk as bytes
};

uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

Loop make_loop(const LinearArgs& args) {
  const PackedForm& form = args.weights->form;
  const QuantizedRows& rows = *args.rows;
  Loop l{args, form, rows, rows.groups, 0, smaller(form.group, kLine), 0, 0, 0, 0, 0, 0, nullptr, nullptr};
  l.n_tiles = (rows.n_rows + kTileRows - 1) / kTileRows;
  l.tile_rows = (rows.n_rows + l.n_tiles - 1) / l.n_tiles;
  const bool wide = rows.n_rows > args.plan->narrow_rows_max;
  const uint32_t inputs = wide ? args.plan->chunk_inputs_wide : args.plan->chunk_inputs_narrow;
  l.chunk_groups = inputs < form.group ? 1 : inputs / form.group;
  l.scales_bytes = kPanelOutputs * (form.scale_type == ScaleType::f32 ? 4 : 2);
  l.tail_bytes = form.offset ? 2 * l.scales_bytes : l.scales_bytes;
  l.group_bytes = size_t{form.group} * kPanelOutputs * form.bits / 8 + l.tail_bytes;
  l.panel_bytes = panel_bytes(form);
  l.sums = static_cast<float*>(args.scratch);
  l.unpacked = reinterpret_cast<uint8_t*>(l.sums + size_t{l.n_tiles} * kTileRows * kPanelOutputs);
  return l;
}

// First row of a tile. The last tile ends with the last row and may repeat rows of the one before it.
uint32_t first_row(const Loop& l, uint32_t tile) { return smaller(tile * l.tile_rows, l.rows.n_rows - l.tile_rows); }

struct Step {
  const uint8_t* codes;  // of the group, a byte each
  const uint8_t* tail;   // its scales, then offsets
  uint32_t row, group;
  float* sums;           // of the tile
};

uint32_t inputs_of(const Loop& l, uint32_t group) { return smaller(l.form.group, l.form.cols - group * l.form.group); }

// Tile registers 0 to 3 = activations . codes, for 16 rows and 64 outputs.
void multiply(const Loop& l, const Step& s) {
  const uint32_t parts = inputs_of(l, s.group) / l.inputs;
  const size_t part_bytes = size_t{l.inputs} / 4 * kBlockBytes;
  const int8_t* x = l.rows.codes + size_t{s.row} * l.rows.stride + size_t{s.group} * l.form.group;
  const uint8_t* w = s.codes;
  const long stride = l.rows.stride, block = kBlockBytes;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (uint32_t p = 0; p < parts; p++, x += l.inputs, w += part_bytes) {
    _tile_loadd(4, x, stride);
    _tile_loadd(5, w, block);
    _tile_dpbsud(0, 4, 5);
    _tile_loadd(6, w + 64, block);
    _tile_dpbsud(1, 4, 6);
    _tile_loadd(5, w + 128, block);
    _tile_dpbsud(2, 4, 5);
    _tile_loadd(6, w + 192, block);
    _tile_dpbsud(3, 4, 6);
  }
}

void store(int32_t* sums) {  // (16, 64)
  _tile_stored(0, sums, kBlockBytes);
  _tile_stored(1, sums + 16, kBlockBytes);
  _tile_stored(2, sums + 32, kBlockBytes);
  _tile_stored(3, sums + 48, kBlockBytes);
}

__m512 load_scales(ScaleType type, const uint8_t* p, uint32_t index) {
  if (type == ScaleType::f32) return _mm512_loadu_ps(p + index * 4);
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + index * 2));
  if (type == ScaleType::f16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Lines of the next chunk, a few with every row that is scaled: a burst would fill the line buffers.
struct Ahead {
  const char* next;
  uint32_t lines;  // a row
  bool wide;       // prefill: L1 straight away; else into L2, which keeps more lines in flight
};

// A group's integer sums into the fp32 sums of its tile. Everything is in locals: a vector store may alias any member.
template <bool Offset>
void scale(const Loop& l, const Step& s, const int32_t* sums, Ahead& ahead) {
  __m512 ws[4], wb[4];
  for (uint32_t v = 0; v < 4; v++) {
    ws[v] = load_scales(l.form.scale_type, s.tail, v * 16);
    if constexpr (Offset) wb[v] = load_scales(l.form.scale_type, s.tail + l.scales_bytes, v * 16);
  }
  const size_t at = size_t{s.row} * l.groups + s.group, step = l.groups;
  const float *scales = l.rows.scales + at, *x_sums = l.rows.sums + at;
  const int32_t* corrections = l.rows.corrections + at;
  const int shift = l.form.bits == 8 ? 0 : 4;  // corrections hold -128 * X; the zero point of 4 bits is 8
  const char* next = ahead.next;
  const uint32_t lines = ahead.lines, rows = l.tile_rows;
  const bool wide = ahead.wide;
  float* to = s.sums;
  for (uint32_t r = 0; r < rows; r++, to += kPanelOutputs, sums += kPanelOutputs) {
    for (uint32_t i = 0; i < lines; i++, next += kLine) {
      if (wide)
        __builtin_prefetch(next);
      else
        __builtin_prefetch(next, 0, 2);
    }
    const __m512 xs = _mm512_set1_ps(*scales);
    const __m512i start = _mm512_set1_epi32(*corrections >> shift);
    [[maybe_unused]] __m512 x_sum;
    if constexpr (Offset) x_sum = _mm512_set1_ps(*x_sums);
    for (uint32_t v = 0; v < 4; v++) {
      __m512i sum = _mm512_load_si512(sums + v * 16);
      if constexpr (!Offset) sum = _mm512_add_epi32(sum, start);
      __m512 f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(ws[v], xs), _mm512_loadu_ps(to + v * 16));
      if constexpr (Offset) f = _mm512_fmadd_ps(x_sum, _mm512_mul_ps(wb[v], xs), f);
      _mm512_storeu_ps(to + v * 16, f);
    }
    scales += step;
    corrections += step;
    if constexpr (Offset) x_sums += step;
  }
  ahead.next = next;
}

void unpack_group(const uint8_t* from, uint8_t* to, uint32_t inputs) {
  const __m512i mask = _mm512_set1_epi8(15);
  for (uint32_t b = 0; b < inputs / 8; b++, from += 256, to += 512)
    for (uint32_t i = 0; i < 256; i += 64) {
      const __m512i both = _mm512_loadu_si512(from + i);
      _mm512_storeu_si512(to + i, _mm512_and_si512(both, mask));
      _mm512_storeu_si512(to + 256 + i, _mm512_and_si512(_mm512_srli_epi16(both, 4), mask));
    }
}

template <bool Offset>
void run_chunk(const Loop& l, const uint8_t* at, uint32_t first_group, size_t bytes) {
  alignas(64) int32_t sums[kTileRows * kPanelOutputs];
  const uint32_t groups = smaller(l.chunk_groups, l.groups - first_group), steps = groups * l.n_tiles;
  const bool unpack = l.form.bits == 4;
  const size_t code_bytes = size_t{l.form.group} * kPanelOutputs;
  if (unpack) {
    for (uint32_t g = 0; g < groups; g++) unpack_group(at + g * l.group_bytes, l.unpacked + g * code_bytes, inputs_of(l, first_group + g));
    __asm__ volatile("" ::: "memory");  // gcc's tile loads do not say that they read memory
  }
  Ahead ahead{reinterpret_cast<const char*>(at + bytes), static_cast<uint32_t>((bytes / kLine + steps * l.tile_rows - 1) / (steps * l.tile_rows)),
              l.rows.n_rows > l.args.plan->narrow_rows_max};
  Step before{};
  for (uint32_t tile = 0; tile < l.n_tiles; tile++) {
    Step s{nullptr, nullptr, first_row(l, tile), 0, l.sums + size_t{tile} * kTileRows * kPanelOutputs};
    if (first_group == 0) std::memset(s.sums, 0, size_t{l.tile_rows} * kPanelOutputs * sizeof(float));
    for (uint32_t g = 0; g < groups; g++) {
      const uint8_t* const packed = at + g * l.group_bytes;
      s.group = first_group + g;
      s.codes = unpack ? l.unpacked + g * code_bytes : packed;
      s.tail = packed + size_t{inputs_of(l, s.group)} * kPanelOutputs * l.form.bits / 8;
      multiply(l, s);
      if (before.sums != nullptr) scale<Offset>(l, before, sums, ahead);
      store(sums);
      before = s;
    }
  }
  scale<Offset>(l, before, sums, ahead);
}

// fp32 sums to dst, with bias and residual: one add each, each row once.
void write_panel(const Loop& l, uint32_t panel) {
  const LinearArgs& a = l.args;
  const uint32_t first = panel * kPanelOutputs, n = smaller(kPanelOutputs, l.form.rows - first);
  uint32_t row = 0;
  for (uint32_t tile = 0; tile < l.n_tiles; tile++)
    for (const uint32_t begin = first_row(l, tile); row < begin + l.tile_rows; row++) {
      float* const sums = l.sums + (size_t{tile} * kTileRows + row - begin) * kPanelOutputs;
      if (a.bias != nullptr)
        for (uint32_t o = 0; o < n; o++) sums[o] += a.bias[first + o];
      if (a.residual != nullptr)
        for (uint32_t o = 0; o < n; o++) sums[o] += a.residual[row * a.residual_stride + first + o];
      std::memcpy(a.dst + row * a.dst_stride + first, sums, n * sizeof(float));
    }
}

bool takes(const LinearArgs& args) {
  const PackedForm& form = args.weights->form;
  const uint32_t inputs = smaller(form.group, kLine);
  return args.rows->n_rows > 1 && args.rows->n_tiles == args.rows->n_rows && form.cols % inputs == 0;
}

}  // namespace

void linear_amx(const LinearArgs& args) {
  if (!takes(args)) return linear_avx512(args);
  const Loop l = make_loop(args);
  configure(l.tile_rows, l.inputs);
  for (uint32_t p = args.panel_begin; p < args.panel_end; p++) {
    const uint8_t* const panel = args.weights->data + p * l.panel_bytes;
    for (uint32_t g = 0; g < l.groups; g += l.chunk_groups) {
      const bool last = g + l.chunk_groups >= l.groups;
      const size_t bytes = last ? l.panel_bytes - g * l.group_bytes : l.chunk_groups * l.group_bytes;
      if (l.form.offset)
        run_chunk<true>(l, panel + g * l.group_bytes, g, bytes);
      else
        run_chunk<false>(l, panel + g * l.group_bytes, g, bytes);
    }
    write_panel(l, p);
  }
  _tile_release();
}

}  // namespace espalier
