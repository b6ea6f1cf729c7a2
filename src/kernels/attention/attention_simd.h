// The vector form of attention, written once. Included by attention_<isa>.cc after its simd header and its tile sizes
// (kScoreRows, kScoreParts, kValueRows, kValueColumns); internal linkage.
//
// Scores: lanes are 16 slots of a K tile, the 16 partial sums of the rule are registers, combined by plain adds: kScoreParts of
// them (i, i + 16/kScoreParts, …) run together and are combined at once, so that they never all live. A score depends on one
// query and one key only, so keys of the call are scored where they lie, tile by tile of slots, and then put at their positions.
// Everything after that goes by position. Values: lanes are dims, one chain an output, several rows share a loaded V row.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_scratch.h"
#include "kernels/math/unroll.h"

namespace espalier {
namespace {

constexpr uint32_t kSplit = kAttentionSplit;
constexpr int kParts = 16 / kLanes;

inline Vf widen(const float* p) { return vload(p); }
inline Vf widen(const uint16_t* p) { return vload_half(p); }
inline Vf widen(const int8_t* p) { return vload_i8(p); }
inline Vf widen_n(const uint16_t* p, int n) { return vload_half_n(p, n); }
inline Vf widen_n(const int8_t* p, int n) { return vload_i8_n(p, n); }
inline uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

// One item at work. Queries are (row of the block, head of the group), the head fastest.
template <typename T>
struct Job {
  const AttentionArgs& a;
  const AttentionItem& item;
  uint32_t group, dim, dim16, n_rows, n_queries;
  uint32_t base = 0, held = 0;  // of the present split: its first position, and how many of its positions are held
  float *queries, *scores, *tile, *fresh, *values, *block_out, *total_out;
  float *block_m, *block_l, *total_m, *total_l;

  const AttentionRow& row(uint32_t r) const { return a.rows[item.row_begin + r]; }
  const std::byte* held_block(uint32_t position) const {
    return a.sequences[item.sequence].held[position / kKvPagePositions] + a.held_offset + item.kv_head * a.layout.bytes;
  }
  const std::byte* fresh_block(uint32_t slot) const {
    return a.sequences[item.sequence].fresh[slot / kKvPagePositions] + a.fresh_offset + item.kv_head * a.layout.bytes;
  }
};

// ---- scores

// dst[r][lane] = sum16 over d of q[r][d] · k[d][lane] for R queries and 16 lanes. kDim is dim16, or 0 where only dim_given tells.
template <int R, uint32_t kDim, typename T>
inline void score_rows(const T* k, const float* q, uint32_t dim_given, const float* scales, float* dst, uint32_t dst_stride) {
  const uint32_t dim16 = kDim == 0 ? dim_given : kDim;
  constexpr int kStep = 16 / kScoreParts;  // partial sums e, e + kStep, …
  Vf u[R][kParts][kStep];
  ESPALIER_UNROLL for (int e = 0; e < kStep; ++e) {
    Vf s[R][kParts][kScoreParts];
    ESPALIER_UNROLL for (int r = 0; r < R; ++r) {
      ESPALIER_UNROLL for (int h = 0; h < kParts; ++h) {
        ESPALIER_UNROLL for (int m = 0; m < kScoreParts; ++m) s[r][h][m] = vzero();
      }
    }
    for (uint32_t d = static_cast<uint32_t>(e); d < dim16; d += 16) {
      ESPALIER_UNROLL for (int m = 0; m < kScoreParts; ++m) {
        const uint32_t dm = d + static_cast<uint32_t>(m * kStep);
        Vf kv[kParts];
        ESPALIER_UNROLL for (int h = 0; h < kParts; ++h) kv[h] = widen(k + dm * 16 + h * kLanes);
        ESPALIER_UNROLL for (int r = 0; r < R; ++r) {
          const Vf qv = vset(q[static_cast<uint32_t>(r) * dim16 + dm]);
          ESPALIER_UNROLL for (int h = 0; h < kParts; ++h) s[r][h][m] = vfma(qv, kv[h], s[r][h][m]);
        }
      }
    }
    ESPALIER_UNROLL for (int r = 0; r < R; ++r) {
      ESPALIER_UNROLL for (int h = 0; h < kParts; ++h) {
        if constexpr (kScoreParts == 4)
          u[r][h][e] = vadd(vadd(s[r][h][0], s[r][h][2]), vadd(s[r][h][1], s[r][h][3]));
        else
          u[r][h][e] = vadd(s[r][h][0], s[r][h][1]);
      }
    }
  }
  ESPALIER_UNROLL for (int r = 0; r < R; ++r) {
    ESPALIER_UNROLL for (int h = 0; h < kParts; ++h) {
      if constexpr (kStep == 8) {
        ESPALIER_UNROLL for (int i = 0; i < 4; ++i) u[r][h][i] = vadd(u[r][h][i], u[r][h][i + 4]);
      }
      Vf sum = vadd(vadd(u[r][h][0], u[r][h][2]), vadd(u[r][h][1], u[r][h][3]));
      if (scales != nullptr) sum = vmul(sum, vload(scales + h * kLanes));
      vstore(dst + static_cast<uint32_t>(r) * dst_stride + h * kLanes, sum);
    }
  }
}

template <uint32_t kDim, typename T, typename K>
inline void score_sized(const Job<T>& j, const K* k, const float* scales, float* dst, uint32_t dst_stride) {
  uint32_t q = 0;
  for (; q + kScoreRows <= j.n_queries; q += kScoreRows)
    score_rows<kScoreRows, kDim>(k, j.queries + q * j.dim16, j.dim16, scales, dst + q * dst_stride, dst_stride);
  for (; q + 2 <= j.n_queries; q += 2)
    score_rows<2, kDim>(k, j.queries + q * j.dim16, j.dim16, scales, dst + q * dst_stride, dst_stride);
  if (q < j.n_queries) score_rows<1, kDim>(k, j.queries + q * j.dim16, j.dim16, scales, dst + q * dst_stride, dst_stride);
}

template <typename T, typename K>
inline void score_queries(const Job<T>& j, const K* k, const float* scales, float* dst, uint32_t dst_stride) {
  if (j.dim16 == 64) return score_sized<64>(j, k, scales, dst, dst_stride);
  score_sized<0>(j, k, scales, dst, dst_stride);
}

// All queries against the 16 lanes from `lane` of a block. Several groups of queries share one widened copy of the tile.
template <typename T>
inline void score_tile(const Job<T>& j, const std::byte* block, uint32_t lane, float* dst, uint32_t dst_stride) {
  const T* k = reinterpret_cast<const T*>(block) + lane * j.dim;
  const float* scales = nullptr;
  if constexpr (sizeof(T) == 1) scales = reinterpret_cast<const float*>(block + j.a.layout.k_scale_offset) + lane;
  for (uint32_t line = 0; line < j.dim * 16 * sizeof(T); line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(k + j.dim * 64) + line);
  if (j.n_queries <= kScoreRows && j.dim == j.dim16) return score_queries(j, k, scales, dst, dst_stride);
  for (uint32_t i = 0; i < j.dim * 16; i += kLanes) vstore(j.tile + i, widen(k + i));
  score_queries(j, static_cast<const float*>(j.tile), scales, dst, dst_stride);
}

// Positions of the split up to and with the last key of a row.
template <typename T>
inline uint32_t row_extent(const Job<T>& j, const AttentionRow& row) {
  for (uint32_t k = row.run_count; k > 0; --k) {
    const AttentionRun& run = j.a.runs[row.run_begin + k - 1];
    if (run.position >= j.base + kSplit) continue;
    if (run.position + run.count > j.base) return least(run.position + run.count - j.base, kSplit);
    break;
  }
  return j.held;
}

struct Overlap {  // of a run with a split and a range of slots
  uint32_t position, slot, count;
};
inline Overlap clip(const AttentionRun& run, uint32_t base, uint32_t slot_begin, uint32_t slot_end) {
  uint32_t skip = run.position < base ? base - run.position : 0;
  if (run.slot < slot_begin) skip = most(skip, slot_begin - run.slot);
  if (skip >= run.count || run.position + skip >= base + kSplit || run.slot + skip >= slot_end) return {0, 0, 0};
  uint32_t count = run.count - skip;
  count = least(count, base + kSplit - (run.position + skip));
  count = least(count, slot_end - (run.slot + skip));
  return {run.position + skip, run.slot + skip, count};
}

// Calls fn(row index, overlap) for what the block's rows see of a range of slots in this split.
template <typename T, typename Fn>
inline void for_overlaps(const Job<T>& j, uint32_t slot_begin, uint32_t slot_end, Fn&& fn) {
  for (uint32_t r = 0; r < j.n_rows; ++r) {
    const AttentionRow& row = j.row(r);
    for (uint32_t k = 0; k < row.run_count; ++k) {
      const AttentionRun& run = j.a.runs[row.run_begin + k];
      if (run.position >= j.base + kSplit) break;
      const Overlap o = clip(run, j.base, slot_begin, slot_end);
      if (o.count > 0) fn(r, o);
    }
  }
}

template <typename T>
inline void score_fresh(const Job<T>& j) {
  uint32_t first = UINT32_MAX, last = 0;
  for_overlaps(j, 0, UINT32_MAX, [&](uint32_t, const Overlap& o) {
    first = least(first, o.slot / 16);
    last = most(last, (o.slot + o.count - 1) / 16);
  });
  if (first == UINT32_MAX) return;
  for (uint32_t t = first; t <= last; ++t) {
    bool scored = false;
    for_overlaps(j, t * 16, t * 16 + 16, [&](uint32_t r, const Overlap& o) {
      if (!scored) score_tile(j, j.fresh_block(t * 16), t * 16 % kKvPagePositions, j.fresh, 16);
      scored = true;
      for (uint32_t q = r * j.group; q < (r + 1) * j.group; ++q)
        for (uint32_t i = 0; i < o.count; ++i)
          j.scores[q * kSplit + (o.position - j.base) + i] = j.fresh[q * 16 + (o.slot - t * 16) + i];
    });
  }
}

// Scores of a split by position; minus infinity where a row has no key.
template <typename T>
inline void score_split(const Job<T>& j) {
  for (uint32_t p = 0; p < j.held; p += 16)
    score_tile(j, j.held_block(j.base + p), (j.base + p) % kKvPagePositions, j.scores + p, kSplit);
  for (uint32_t r = 0; r < j.n_rows; ++r) {
    const uint32_t end = (row_extent(j, j.row(r)) + 15) / 16 * 16;
    for (uint32_t q = r * j.group; q < (r + 1) * j.group; ++q)
      for (uint32_t i = j.held; i < end; ++i) j.scores[q * kSplit + i] = -__builtin_inff();
  }
  score_fresh(j);
}

// ---- softmax of a split

template <typename T>
inline void soften(const Job<T>& j, uint32_t query) {
  float* s = j.scores + query * kSplit;
  const uint32_t end = (row_extent(j, j.row(query / j.group)) + 15) / 16 * 16;
  float lanes[kLanes], m = -__builtin_inff();
  Vf top = vset(m);
  for (uint32_t i = 0; i < end; i += kLanes) top = vmax(vload(s + i), top);
  vstore(lanes, top);
  for (int i = 0; i < kLanes; ++i) m = lanes[i] > m ? lanes[i] : m;
  Vf part[kParts];
  for (int k = 0; k < kParts; ++k) part[k] = vzero();
  const Vf max = vset(m);
  for (uint32_t i = 0; i < end; i += 16) {
    ESPALIER_UNROLL for (int k = 0; k < kParts; ++k) {
      const Vf p = canonical_exp(vsub(vload(s + i + k * kLanes), max));
      vstore(s + i + k * kLanes, p);
      part[k] = vadd(part[k], p);
    }
  }
  j.block_m[query] = m;
  j.block_l[query] = sum16(part);
}

// ---- values

// o[r][0 … C vectors) += p[r][b] · v[b] for b ascending. Scaled: codes, whose scale goes into p.
template <int R, int C, bool Scaled, typename T>
inline void add_columns(const T* v, uint32_t dim, const float* scales, const float* p, uint32_t count, float* o, uint32_t o_stride) {
  Vf acc[R][C];
  ESPALIER_UNROLL for (int r = 0; r < R; ++r) {
    ESPALIER_UNROLL for (int c = 0; c < C; ++c) acc[r][c] = vload(o + static_cast<uint32_t>(r) * o_stride + c * kLanes);
  }
  for (uint32_t b = 0; b < count; ++b, v += dim) {
    Vf x[C];
    ESPALIER_UNROLL for (int c = 0; c < C; ++c) x[c] = widen(v + c * kLanes);
    ESPALIER_UNROLL for (int r = 0; r < R; ++r) {
      const float weight = p[static_cast<uint32_t>(r) * kSplit + b];
      const Vf w = vset(Scaled ? weight * scales[b] : weight);
      ESPALIER_UNROLL for (int c = 0; c < C; ++c) acc[r][c] = vfma(w, x[c], acc[r][c]);
    }
  }
  ESPALIER_UNROLL for (int r = 0; r < R; ++r) {
    ESPALIER_UNROLL for (int c = 0; c < C; ++c) vstore(o + static_cast<uint32_t>(r) * o_stride + c * kLanes, acc[r][c]);
  }
}

// The last n < kLanes columns.
template <int R, typename T>
inline void add_tail(const T* v, uint32_t dim, const float* scales, const float* p, uint32_t count, float* o, uint32_t o_stride,
                     int n) {
  Vf acc[R];
  for (int r = 0; r < R; ++r) acc[r] = vload(o + static_cast<uint32_t>(r) * o_stride);
  for (uint32_t b = 0; b < count; ++b, v += dim) {
    const Vf x = widen_n(v, n);
    for (int r = 0; r < R; ++r) {
      const float weight = p[static_cast<uint32_t>(r) * kSplit + b];
      acc[r] = vfma(vset(sizeof(T) == 1 ? weight * scales[b] : weight), x, acc[r]);
    }
  }
  for (int r = 0; r < R; ++r) vstore(o + static_cast<uint32_t>(r) * o_stride, acc[r]);
}

template <int R, typename T>
inline void add_rows(const Job<T>& j, uint32_t query, const T* v, const float* scales, const float* p, uint32_t count) {
  float* o = j.block_out + query * j.dim16;
  uint32_t d = 0;
  for (; d + kValueColumns * kLanes <= j.dim; d += kValueColumns * kLanes)
    add_columns<R, kValueColumns, sizeof(T) == 1>(v + d, j.dim, scales, p, count, o + d, j.dim16);
  for (; d + kLanes <= j.dim; d += kLanes) add_columns<R, 1, sizeof(T) == 1>(v + d, j.dim, scales, p, count, o + d, j.dim16);
  if (d < j.dim) add_tail<R>(v + d, j.dim, scales, p, count, o + d, j.dim16, static_cast<int>(j.dim - d));
}

// `count` keys from `lane` of a block, at positions from `position`, for n neighbouring queries.
template <typename T>
inline void add_lanes(const Job<T>& j, uint32_t query, uint32_t n, const std::byte* block, uint32_t lane, uint32_t position,
                      uint32_t count) {
  const T* v = reinterpret_cast<const T*>(block + j.a.layout.v_offset) + lane * j.dim;
  const float* scales = nullptr;
  if constexpr (sizeof(T) == 1) scales = reinterpret_cast<const float*>(block + j.a.layout.v_scale_offset) + lane;
  const float* p = j.scores + query * kSplit + (position - j.base);
  switch (n) {
    case 4: return add_rows<4>(j, query, v, scales, p, count);
    case 3: return add_rows<3>(j, query, v, scales, p, count);
    case 2: return add_rows<2>(j, query, v, scales, p, count);
    default: return add_rows<1>(j, query, v, scales, p, count);
  }
}

// A place in a row's list of runs.
struct Place {
  uint32_t run, offset;
};

// How far the lists of rows [first, last] are one and the same.
template <typename T>
inline Place common_end(const Job<T>& j, uint32_t first, uint32_t last) {
  const AttentionRow& head = j.row(first);
  for (uint32_t k = 0;; ++k) {
    if (k == head.run_count) return {k, 0};
    const AttentionRun& run = j.a.runs[head.run_begin + k];
    uint32_t shared = run.count, longest = run.count;
    for (uint32_t r = first + 1; r <= last; ++r) {
      if (k == j.row(r).run_count) return {k, 0};
      const AttentionRun& other = j.a.runs[j.row(r).run_begin + k];
      if (other.position != run.position || other.slot != run.slot) return {k, 0};
      shared = least(shared, other.count);
      longest = most(longest, other.count);
    }
    if (shared != longest) return {k, shared};
  }
}

// Keys of the call from one place of a row's list to another, for n neighbouring queries that all have them.
template <typename T>
inline void add_runs(const Job<T>& j, uint32_t query, uint32_t n, const AttentionRow& row, Place from, Place to) {
  for (uint32_t k = from.run; k < row.run_count && k <= to.run; ++k) {
    AttentionRun run = j.a.runs[row.run_begin + k];
    if (k == to.run) run.count = least(run.count, to.offset);
    const uint32_t skip = k == from.run ? from.offset : 0;
    if (skip >= run.count) continue;
    run = {run.position + skip, run.slot + skip, run.count - skip};
    Overlap o = clip(run, j.base, 0, UINT32_MAX);
    while (o.count > 0) {
      const uint32_t lane = o.slot % kKvPagePositions, count = least(o.count, kKvPagePositions - lane);
      add_lanes(j, query, n, j.fresh_block(o.slot), lane, o.position, count);
      o = {o.position + count, o.slot + count, o.count - count};
    }
  }
}

// The same for V rows that lie in j.values, whole registers wide.
template <int R, typename T>
inline void add_widened(const Job<T>& j, uint32_t query, const float* scales, const float* p, uint32_t count) {
  float* o = j.block_out + query * j.dim;
  uint32_t d = 0;
  for (; d + kValueColumns * kLanes <= j.dim; d += kValueColumns * kLanes)
    add_columns<R, kValueColumns, sizeof(T) == 1>(j.values + d, j.dim, scales, p, count, o + d, j.dim);
  for (; d < j.dim; d += kLanes) add_columns<R, 1, sizeof(T) == 1>(j.values + d, j.dim, scales, p, count, o + d, j.dim);
}

// Held keys of a split for all queries: a few V rows at a time are widened once.
static_assert(kValueRows == 4);
template <typename T>
inline void add_held_widened(const Job<T>& j) {
  for (uint32_t at = 0; at < j.held; at += kAttentionValueRows) {
    const uint32_t count = least(kAttentionValueRows, j.held - at), position = j.base + at, lane = position % kKvPagePositions;
    const std::byte* block = j.held_block(position);
    const T* v = reinterpret_cast<const T*>(block + j.a.layout.v_offset) + lane * j.dim;
    const float* scales = nullptr;
    if constexpr (sizeof(T) == 1) scales = reinterpret_cast<const float*>(block + j.a.layout.v_scale_offset) + lane;
    for (uint32_t i = 0; i < count * j.dim; i += kLanes) vstore(j.values + i, widen(v + i));
    const float* p = j.scores + at;
    uint32_t q = 0;
    for (; q + kValueRows <= j.n_queries; q += kValueRows) add_widened<kValueRows>(j, q, scales, p + q * kSplit, count);
    switch (j.n_queries - q) {
      case 3: add_widened<3>(j, q, scales, p + q * kSplit, count); break;
      case 2: add_widened<2>(j, q, scales, p + q * kSplit, count); break;
      case 1: add_widened<1>(j, q, scales, p + q * kSplit, count); break;
      default: break;
    }
  }
}

// Held keys of a split for n <= kValueRows neighbouring queries.
template <typename T>
inline void add_held(const Job<T>& j, uint32_t query, uint32_t n) {
  for (uint32_t p = 0; p < j.held; p += kKvPagePositions) {
    const uint32_t position = j.base + p;
    add_lanes(j, query, n, j.held_block(position), 0, position, least(kKvPagePositions, j.held - p));
  }
}

// o of a split: held keys, then of n <= kValueRows neighbouring queries at a time the common part of the rows' lists together,
// then what is a row's own. Positions ascend for each of them.
template <typename T>
inline void add_values(const Job<T>& j) {
  for (uint32_t i = 0; i < j.n_queries * j.dim16; ++i) j.block_out[i] = 0.0f;
  const bool shared = j.n_queries > kValueRows && j.dim == j.dim16;
  if (shared) add_held_widened(j);
  for (uint32_t query = 0; query < j.n_queries; query += kValueRows) {
    const uint32_t n = least(kValueRows, j.n_queries - query);
    if (!shared) add_held(j, query, n);
    const uint32_t first = query / j.group, last = (query + n - 1) / j.group;
    const Place common = common_end(j, first, last);
    add_runs(j, query, n, j.row(first), {0, 0}, common);
    for (uint32_t r = first; r <= last; ++r) {
      const uint32_t begin = most(query, r * j.group), end = least(query + n, (r + 1) * j.group);
      add_runs(j, begin, end - begin, j.row(r), common, {j.row(r).run_count, 0});
    }
  }
}

// ---- splits

// total (m, l, o), of the splits so far, becomes that of one more; l = 0 marks a part without keys.
inline void merge_part(float& m, float& l, float* o, float m_next, float l_next, const float* next, uint32_t dim16) {
  if (l_next == 0.0f) return;
  if (l == 0.0f) {
    m = m_next;
    l = l_next;
    for (uint32_t d = 0; d < dim16; d += kLanes) vstore(o + d, vload(next + d));
    return;
  }
  const float top = m > m_next ? m : m_next;
  float lanes[kLanes];
  vstore(lanes, canonical_exp(vset(m - top)));
  const float w_total = lanes[0];
  vstore(lanes, canonical_exp(vset(m_next - top)));
  const float w_next = lanes[0];
  m = top;
  vstore(lanes, vfma(vset(l_next), vset(w_next), vset(l * w_total)));
  l = lanes[0];
  for (uint32_t d = 0; d < dim16; d += kLanes)
    vstore(o + d, vfma(vload(next + d), vset(w_next), vmul(vload(o + d), vset(w_total))));
}

template <typename T>
inline float* partial_at(const Job<T>& j, uint32_t query, uint32_t split) {
  const size_t index = size_t{query} * j.item.partial_splits + (split - j.item.partial_first);
  return j.a.partials + j.item.partial_begin + index * attention_partial_floats(j.dim);
}

template <typename T>
inline void keep_split(const Job<T>& j, uint32_t query, uint32_t split, bool empty) {
  const float* o = j.block_out + query * j.dim16;
  const float m = empty ? 0.0f : j.block_m[query], l = empty ? 0.0f : j.block_l[query];
  if (!j.item.partial) return merge_part(j.total_m[query], j.total_l[query], j.total_out + query * j.dim16, m, l, o, j.dim16);
  float* dst = partial_at(j, query, split);
  for (uint32_t d = 0; d < j.dim16; d += kLanes) vstore(dst + d, vload(o + d));
  dst[j.dim16] = m;
  dst[j.dim16 + 1] = l;
}

template <typename T>
inline void attend_split(Job<T>& j, uint32_t split) {
  j.base = split * kSplit;
  j.held = j.item.held > j.base ? least(j.item.held - j.base, kSplit) : 0;
  bool any = j.held > 0;
  for (uint32_t r = 0; r < j.n_rows && !any; ++r) any = row_extent(j, j.row(r)) > 0;
  if (any) {
    score_split(j);
    for (uint32_t q = 0; q < j.n_queries; ++q) soften(j, q);
    add_values(j);
  }
  for (uint32_t q = 0; q < j.n_queries; ++q) keep_split(j, q, split, !any || row_extent(j, j.row(q / j.group)) == 0);
}

template <typename T>
inline void write_results(const Job<T>& j) {
  for (uint32_t q = 0; q < j.n_queries; ++q) {
    const AttentionRow& row = j.row(q / j.group);
    const size_t head = size_t{j.item.kv_head} * j.group + q % j.group;
    float* dst = j.a.dst + row.call_row * j.a.dst_stride + head * j.dim;
    const float* o = j.total_out + q * j.dim16;
    const Vf l = vset(j.total_l[q]);
    uint32_t d = 0;
    for (; d + kLanes <= j.dim; d += kLanes) vstore(dst + d, vdiv(vload(o + d), l));
    if (d < j.dim) vstore_n(dst + d, vdiv(vload(o + d), l), static_cast<int>(j.dim - d));
  }
}

template <typename T>
inline void load_queries(const Job<T>& j) {
  for (uint32_t i = 0; i < j.dim16 * 16; ++i) j.tile[i] = 0.0f;
  for (uint32_t q = 0; q < j.n_queries; ++q) {
    const size_t head = size_t{j.item.kv_head} * j.group + q % j.group;
    const float* src = j.a.q + j.row(q / j.group).call_row * j.a.q_stride + head * j.dim;
    for (uint32_t d = 0; d < j.dim16; ++d) j.queries[q * j.dim16 + d] = d < j.dim ? src[d] : 0.0f;
  }
}

template <typename T>
inline Job<T> make_job(const AttentionArgs& a, const AttentionItem& item, float* scratch) {
  const uint32_t group = a.shape.n_heads / a.shape.n_kv_heads, dim = a.shape.head_dim, rows = item.row_end - item.row_begin;
  const uint32_t queries = rows * group, padded = (queries + 15) / 16 * 16;
  const AttentionScratch at = attention_scratch(queries, dim);
  float* tail = scratch + at.total_out + size_t{queries} * ((dim + 15) / 16 * 16);
  return {a, item, group, dim, (dim + 15) / 16 * 16, rows, queries, 0, 0,
          scratch + at.queries, scratch + at.scores, scratch + at.tile, scratch + at.fresh, scratch + at.values, scratch + at.block_out,
          scratch + at.total_out, tail, tail + padded, tail + 2 * padded, tail + 3 * padded};
}

template <typename T>
inline void run_item(const AttentionArgs& a, const AttentionItem& item, float* scratch) {
  Job<T> j = make_job<T>(a, item, scratch);
  for (uint32_t q = 0; q < j.n_queries; ++q) j.total_l[q] = 0.0f;
  if (!item.merge) load_queries(j);
  for (uint32_t s = item.split_begin; s < item.split_end; ++s) {
    if (!item.merge) {
      attend_split(j, s);
      continue;
    }
    for (uint32_t q = 0; q < j.n_queries; ++q) {
      const float* part = partial_at(j, q, s);
      merge_part(j.total_m[q], j.total_l[q], j.total_out + q * j.dim16, part[j.dim16], part[j.dim16 + 1], part, j.dim16);
    }
  }
  if (item.merge || !item.partial) write_results(j);
}

inline void attention_item(const AttentionArgs& a, const AttentionItem& item, void* scratch) {
  float* floats = static_cast<float*>(scratch);
  if (a.layout.type == KvType::f16) return run_item<uint16_t>(a, item, floats);
  run_item<int8_t>(a, item, floats);
}

}  // namespace
}  // namespace espalier
