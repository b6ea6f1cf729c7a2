// The matrix product over packed panels, written once for every vector instruction set. Included inside an unnamed namespace,
// so that each variant keeps its own copy with its own flags. The variant provides `struct Simd` with
//     Int, Float, Codes                   registers; Codes is a register of 8-bit codes made ready for dot
//     kLanes                              outputs in a register; kLanes * 4 code bytes
//     kSubtracted                         what ready() takes from 8-bit codes: 0, or 128 where codes must be signed
//     kPrefetch                           whether lines are fetched ahead
//     kUnpack4                            whether chunks of 4-bit codes may be unpacked to bytes (needs kSubtracted == 0)
//     kRowsMax, vectors(rows)             rows of a tile, and registers of outputs beside them; sums_in_registers(rows)
//     zero, spread(int32_t), to_float     integers
//     ready(p), split(p, low, high)       8-bit codes at p; 4-bit codes at p as 2 registers of bytes
//     dot(acc, codes, x), dot4(...)       acc + codes . x for 4 bytes a lane, exact
//     load, store, spread(float), mul, fma, scales(type, p, i)
//
// Plan. A chunk of a panel (a few groups) stays in L1 and is served to all tiles of rows; meanwhile the lines of the next
// chunk are prefetched, spread evenly over the tiles (a burst would fill the line buffers, and one far stream stops the
// hardware prefetcher). In prefill the codes of the next tile are prefetched instead and the next chunk goes to L2 in small
// portions. fp32 sums of a few rows stay in registers over a chunk; with more rows they live in scratch, one load and store a
// group.

#if defined(__clang__)
#define LINEAR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LINEAR_UNROLL _Pragma("GCC unroll 16")
#endif

// Where the integer sum of a group starts, so that it ends as sum (code - zero point) * x.
enum class Start { zero, minus128, minus8, plus128 };

struct Chunk {
  const uint8_t* codes;    // first group
  uint32_t groups;
  uint32_t blocks;         // 256-byte blocks of codes in a group
  uint32_t last_blocks;    // of the last group of this chunk
  uint32_t scales_bytes, tail_bytes;
  ScaleType scale_type;
  const char* ahead;       // prefetched: `step` bytes on with every block, and `extra` lines at each group's end
  uint32_t ahead_step, ahead_extra;
};

struct Tile {
  const int8_t* codes;  // of the chunk's first input
  const float* scales;
  const float* sums;
  const int32_t* corrections;
  float* out;           // (rows, 64): sums so far
  uint32_t stride;      // rows of the tile in memory, of which this call takes some
};

inline __attribute__((always_inline)) typename Simd::Int start_at(Start start, int32_t correction) {
  switch (start) {  // correction = -128 * X
    case Start::zero: return Simd::zero();
    case Start::minus128: return Simd::spread(correction);
    case Start::minus8: return Simd::spread(correction >> 4);
    case Start::plus128: return Simd::spread(-correction);
  }
  return Simd::zero();
}

inline __attribute__((always_inline)) int32_t four_codes(const int8_t* at) {
  int32_t four;
  __builtin_memcpy(&four, at, sizeof four);
  return four;
}

// Rows * registers of outputs, all groups of a chunk. Lines: prefetches a block.
template <int Rows, int Bits, Start kStart, bool Offset, int Lines>
__attribute__((noinline)) void tile_kernel(const Chunk& c, const Tile& t) {
  using S = Simd;
  constexpr int V = S::vectors(Rows);
  constexpr bool kInRegisters = S::sums_in_registers(Rows);
  constexpr int kPart = V * S::kLanes;  // outputs at once
  const size_t x_step = size_t{t.stride} * 4;
  for (uint32_t part = 0; part < kPanelOutputs; part += kPart) {
    const uint8_t* w = c.codes + part * 4;
    const int8_t* x = t.codes;
    const float* xs = t.scales;
    const float* sums = t.sums;
    const int32_t* corrections = t.corrections;
    float* const out = t.out + part;
    const char* ahead = c.ahead;
    [[maybe_unused]] typename S::Float f[kInRegisters ? Rows : 1][V];
    if constexpr (kInRegisters)
      LINEAR_UNROLL for (int r = 0; r < Rows; r++)
        LINEAR_UNROLL for (int v = 0; v < V; v++) f[r][v] = S::load(out + r * kPanelOutputs + v * S::kLanes);
    for (uint32_t g = 0; g < c.groups; g++) {
      typename S::Int sum[Rows][V];
      LINEAR_UNROLL for (int r = 0; r < Rows; r++) {
        const typename S::Int begin = start_at(kStart, corrections[r]);
        LINEAR_UNROLL for (int v = 0; v < V; v++) sum[r][v] = begin;
      }
      const uint32_t blocks = g + 1 < c.groups ? c.blocks : c.last_blocks;
      for (uint32_t k = 0; k < blocks; k++) {
        if (S::kPrefetch && part == 0) {
          LINEAR_UNROLL for (int l = 0; l < Lines; l++) __builtin_prefetch(ahead + 64 * l);
          ahead += c.ahead_step;
        }
        if constexpr (Bits == 8) {
          typename S::Codes codes[V];
          LINEAR_UNROLL for (int v = 0; v < V; v++) codes[v] = S::ready(w + v * S::kLanes * 4);
          LINEAR_UNROLL for (int r = 0; r < Rows; r++) {
            const typename S::Int four = S::spread(four_codes(x + 4 * r));
            LINEAR_UNROLL for (int v = 0; v < V; v++) sum[r][v] = S::dot(sum[r][v], codes[v], four);
          }
          x += x_step;
        } else {
          LINEAR_UNROLL for (int v = 0; v < V; v++) {
            typename S::Codes low, high;
            S::split(w + v * S::kLanes * 4, low, high);
            LINEAR_UNROLL for (int r = 0; r < Rows; r++)
              sum[r][v] = S::dot4(sum[r][v], low, high, S::spread(four_codes(x + 4 * r)), S::spread(four_codes(x + x_step + 4 * r)));
          }
          x += 2 * x_step;
        }
        w += 256;
      }
      if (S::kPrefetch && part == 0)
        for (uint32_t l = 0; l < c.ahead_extra; l++, ahead += 64) __builtin_prefetch(ahead);
      const uint8_t* const tail = w - part * 4;
      LINEAR_UNROLL for (int v = 0; v < V; v++) {
        const typename S::Float s = S::scales(c.scale_type, tail, part + v * S::kLanes);
        [[maybe_unused]] typename S::Float b;
        if constexpr (Offset) b = S::scales(c.scale_type, tail + c.scales_bytes, part + v * S::kLanes);
        LINEAR_UNROLL for (int r = 0; r < Rows; r++) {
          float* const at = out + r * kPanelOutputs + v * S::kLanes;
          typename S::Float into;
          if constexpr (kInRegisters)
            into = f[r][v];
          else
            into = S::load(at);
          into = S::fma(S::to_float(sum[r][v]), S::mul(s, S::spread(xs[r])), into);
          if constexpr (Offset) into = S::fma(S::spread(sums[r]), S::mul(b, S::spread(xs[r])), into);
          if constexpr (kInRegisters)
            f[r][v] = into;
          else
            S::store(at, into);
        }
      }
      w += c.tail_bytes;
      xs += t.stride;
      sums += t.stride;
      corrections += t.stride;
    }
    if constexpr (kInRegisters)
      LINEAR_UNROLL for (int r = 0; r < Rows; r++)
        LINEAR_UNROLL for (int v = 0; v < V; v++) S::store(out + r * kPanelOutputs + v * S::kLanes, f[r][v]);
  }
}

using TileFn = void (*)(const Chunk&, const Tile&);

struct TileFns {
  TileFn of[3][Simd::kRowsMax];  // by lines a block (1, 2, 4) and rows - 1
};

template <int Bits, Start kStart, bool Offset, int Rows>
constexpr void fill(TileFns& fns) {
  fns.of[0][Rows - 1] = tile_kernel<Rows, Bits, kStart, Offset, 1>;
  fns.of[1][Rows - 1] = tile_kernel<Rows, Bits, kStart, Offset, Simd::kPrefetch ? 2 : 1>;
  fns.of[2][Rows - 1] = tile_kernel<Rows, Bits, kStart, Offset, Simd::kPrefetch ? 4 : 1>;
  if constexpr (Rows > 1) fill<Bits, kStart, Offset, Rows - 1>(fns);
}
template <int Bits, Start kStart, bool Offset>
constexpr TileFns make_fns() {
  TileFns fns{};
  fill<Bits, kStart, Offset, Simd::kRowsMax>(fns);
  return fns;
}

constexpr Start kStart8 = Simd::kSubtracted == 0 ? Start::minus128 : Start::zero;
constexpr Start kStart8Offset = Simd::kSubtracted == 0 ? Start::zero : Start::plus128;
constexpr TileFns kInt8 = make_fns<8, kStart8, false>();
constexpr TileFns kInt8Offset = make_fns<8, kStart8Offset, true>();
constexpr TileFns kInt4 = make_fns<4, Start::minus8, false>();
constexpr TileFns kInt4Offset = make_fns<4, Start::zero, true>();
// 4-bit codes unpacked to bytes: the 8-bit loop with the zero point of 4 bits.
template <bool Unpack>
constexpr TileFns unpacked_fns() {
  if constexpr (Unpack) return make_fns<8, Start::minus8, false>();
  return kInt4;
}
constexpr TileFns kInt4Unpacked = unpacked_fns<Simd::kUnpack4>();

inline uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

// The geometry of one call, worked out once.
struct Loop {
  const LinearArgs& args;
  const PackedForm& form;
  const QuantizedRows& rows;
  uint32_t groups, chunk_groups;
  uint32_t inputs_a_block;
  uint32_t scales_bytes, tail_bytes;
  size_t group_bytes, panel_bytes;
  bool wide;    // prefill
  bool unpack;
  const TileFns* fns;
  float* sums;         // (n_rows, 64)
  uint8_t* unpacked;   // a chunk of bytes
};

inline uint32_t blocks_of(const Loop& l, uint32_t group) {
  const uint32_t first = group * l.form.group;
  return (smaller(l.form.group, l.form.cols - first) + l.inputs_a_block - 1) / l.inputs_a_block;
}

inline Loop make_loop(const LinearArgs& args) {
  const PackedForm& form = args.weights->form;
  const LinearPlan& plan = *args.plan;
  Loop l{args, form, *args.rows, args.rows->groups, 0, form.bits == 8 ? 4u : 8u, 0, 0, 0, 0, false, false, nullptr, nullptr, nullptr};
  l.scales_bytes = kPanelOutputs * (form.scale_type == ScaleType::f32 ? 4 : 2);
  l.tail_bytes = form.offset ? 2 * l.scales_bytes : l.scales_bytes;
  l.group_bytes = form.group / l.inputs_a_block * size_t{256} + l.tail_bytes;
  l.panel_bytes = (l.groups - 1) * l.group_bytes + blocks_of(l, l.groups - 1) * size_t{256} + l.tail_bytes;
  l.wide = l.rows.n_rows > plan.narrow_rows_max;
  const uint32_t inputs = l.wide ? plan.chunk_inputs_wide : plan.chunk_inputs_narrow;
  l.chunk_groups = inputs < form.group ? 1 : inputs / form.group;
  l.unpack = Simd::kUnpack4 && form.bits == 4 && plan.unpack_rows_min != 0 && l.rows.n_rows >= plan.unpack_rows_min;
  if (form.bits == 8)
    l.fns = form.offset ? &kInt8Offset : &kInt8;
  else if (l.unpack)
    l.fns = form.offset ? &kInt8Offset : &kInt4Unpacked;
  else
    l.fns = form.offset ? &kInt4Offset : &kInt4;
  l.sums = static_cast<float*>(args.scratch);
  l.unpacked = reinterpret_cast<uint8_t*>(l.sums + size_t{l.rows.n_rows} * kPanelOutputs);
  return l;
}

// The same chunk with a byte for each code.
template <typename S = Simd>
inline void unpack_chunk(const Loop& l, Chunk& c) {
  if constexpr (S::kUnpack4) {
    const uint8_t* from = c.codes;
    uint8_t* to = l.unpacked;
    for (uint32_t g = 0; g < c.groups; g++) {
      const uint32_t blocks = g + 1 < c.groups ? c.blocks : c.last_blocks;
      for (uint32_t k = 0; k < blocks; k++, from += 256, to += 512)
        for (uint32_t i = 0; i < 256; i += S::kLanes * 4) S::unpack(from + i, to + i, to + 256 + i);
      __builtin_memcpy(to, from, l.tail_bytes);
      from += l.tail_bytes;
      to += l.tail_bytes;
    }
    c.codes = l.unpacked;
    c.blocks *= 2;
    c.last_blocks *= 2;
  }
}

// How the `lines` that one tile fetches are spread over its blocks: gives the index into TileFns::of.
inline uint32_t spread_prefetch(Chunk& c, uint32_t lines) {
  const uint32_t blocks = (c.groups - 1) * c.blocks + c.last_blocks;
  const uint32_t a_block = lines / blocks;
  const uint32_t pick = a_block >= 4 ? 2 : a_block >= 2 ? 1 : 0;
  const uint32_t fetched = blocks << pick;
  c.ahead_extra = lines > fetched ? (lines - fetched + c.groups - 1) / c.groups : 0;
  c.ahead_step = lines >= fetched ? 64u << pick : lines * 64 / blocks;
  return pick;
}

struct TilePlace {
  size_t first;   // row
  uint32_t rows;
};

inline void run_tile(const Loop& l, const Chunk& c, const TilePlace& at, uint32_t first_group, uint32_t pick) {
  const QuantizedRows& q = l.rows;
  const size_t g = at.first * q.groups + size_t{first_group} * at.rows;
  Tile t{q.codes + at.first * q.stride + size_t{first_group} * l.form.group * at.rows,
         q.scales + g,
         q.sums + g,
         q.corrections + g,
         l.sums + at.first * kPanelOutputs,
         at.rows};
  for (uint32_t left = at.rows; left > 0;) {  // tiles wider than the registers in pieces
    const uint32_t take = smaller(left, Simd::kRowsMax);
    l.fns->of[pick][take - 1](c, t);
    left -= take;
    t.codes += take * 4;
    t.scales += take;
    t.sums += take;
    t.corrections += take;
    t.out += take * kPanelOutputs;
  }
}

inline TilePlace place_tile(const QuantizedRows& q, uint32_t tile) {
  const uint32_t base = q.n_rows / q.n_tiles, more = q.n_rows % q.n_tiles;
  return {size_t{tile} * base + smaller(tile, more), base + (tile < more ? 1 : 0)};
}

// Sums of one tile to dst, with bias and residual: one add each.
inline void write_tile(const Loop& l, const TilePlace& at, uint32_t panel) {
  const LinearArgs& a = l.args;
  const uint32_t first = panel * kPanelOutputs, n = smaller(kPanelOutputs, l.form.rows - first);
  for (size_t r = at.first; r < at.first + at.rows; r++) {
    float* const sums = l.sums + r * kPanelOutputs;
    if (a.bias != nullptr)
      for (uint32_t o = 0; o < n; o++) sums[o] += a.bias[first + o];
    if (a.residual != nullptr)
      for (uint32_t o = 0; o < n; o++) sums[o] += a.residual[r * a.residual_stride + first + o];
    __builtin_memcpy(a.dst + r * a.dst_stride + first, sums, n * sizeof(float));
  }
}

// What the tile after `b` will touch first, and a portion of the next chunk for L2: prefill only.
inline uint32_t fetch_for_next_tile(const Loop& l, Chunk& c, uint32_t first_group, uint32_t b, const char* next, uint32_t lines) {
  constexpr uint32_t kPortion = 8;  // lines of the next chunk before each tile
  const uint32_t x_bytes = ((c.groups - 1) * c.blocks + c.last_blocks) * (l.unpack ? 4 : l.inputs_a_block);  // of a row
  const TilePlace following = place_tile(l.rows, b + 1 < l.rows.n_tiles ? b + 1 : 0);
  if constexpr (Simd::kPrefetch) {
    for (uint32_t i = b * kPortion, end = smaller(lines, i + kPortion); i < end; i++) __builtin_prefetch(next + size_t{i} * 64, 0, 2);
    const float* const sums = l.sums + following.first * kPanelOutputs;
    for (uint32_t i = 0; i < following.rows * kPanelOutputs; i += 16) __builtin_prefetch(sums + i);
  }
  c.ahead = reinterpret_cast<const char*>(l.rows.codes + following.first * l.rows.stride + size_t{first_group} * l.form.group * following.rows);
  return spread_prefetch(c, (x_bytes * following.rows + 63) / 64);
}

inline void fetch_dst(const Loop& l, const TilePlace& at, uint32_t panel) {
  if constexpr (Simd::kPrefetch)
    for (size_t r = at.first; r < at.first + at.rows; r++)
      for (uint32_t o = 0; o < kPanelOutputs; o += 16) __builtin_prefetch(l.args.dst + r * l.args.dst_stride + panel * kPanelOutputs + o);
}

// `bytes` of a panel from its group first_group on.
inline void run_chunk(const Loop& l, uint32_t panel, const uint8_t* at, uint32_t first_group, size_t bytes) {
  const uint32_t n_tiles = l.rows.n_tiles, groups = smaller(l.chunk_groups, l.groups - first_group);
  Chunk c{at, groups, blocks_of(l, first_group), blocks_of(l, first_group + groups - 1), l.scales_bytes, l.tail_bytes,
          l.form.scale_type, nullptr, 0, 0};
  if (l.unpack) unpack_chunk(l, c);
  const char* const next = reinterpret_cast<const char*>(at + bytes);
  const uint32_t lines = static_cast<uint32_t>(bytes / 64);
  const bool last = first_group + groups == l.groups;
  for (uint32_t b = 0; b < n_tiles; b++) {
    const TilePlace place = place_tile(l.rows, b);
    uint32_t pick;
    if (l.wide) {
      pick = fetch_for_next_tile(l, c, first_group, b, next, lines);
      if (last) fetch_dst(l, place, panel);
    } else {
      const uint32_t from = static_cast<uint32_t>(uint64_t{lines} * b / n_tiles), to = static_cast<uint32_t>(uint64_t{lines} * (b + 1) / n_tiles);
      c.ahead = next + size_t{from} * 64;
      pick = spread_prefetch(c, to - from);
    }
    if (first_group == 0) __builtin_memset(l.sums + place.first * kPanelOutputs, 0, place.rows * size_t{kPanelOutputs} * sizeof(float));
    run_tile(l, c, place, first_group, pick);
    if (last) write_tile(l, place, panel);
  }
}

inline void run_panels(const LinearArgs& args) {
  if (args.rows->n_rows == 0) return;
  const Loop l = make_loop(args);
  for (uint32_t p = args.panel_begin; p < args.panel_end; p++) {
    const uint8_t* const panel = args.weights->data + p * l.panel_bytes;
    for (uint32_t g = 0; g < l.groups; g += l.chunk_groups) {
      const bool last = g + l.chunk_groups >= l.groups;
      run_chunk(l, p, panel + g * l.group_bytes, g, last ? l.panel_bytes - g * l.group_bytes : l.chunk_groups * l.group_bytes);
    }
  }
}

#undef LINEAR_UNROLL
