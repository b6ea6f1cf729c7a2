#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/half.h"
#include "kernels/attention/attention_harness.h"
#include "kernels/math/random_values.h"
#include "kernels/math/same_bits.h"

namespace espalier {
namespace {

struct Case {
  AttentionShape shape;
  KvType type;
  KvLayout layout() const { return kv_layout(type, shape.head_dim); }
};

HarnessRow random_row(RandomValues& random, const AttentionShape& s, int32_t position, int32_t parent, uint32_t sequence = 0) {
  const size_t kv = size_t{s.n_kv_heads} * s.head_dim;
  return {sequence, position, parent, random.uniform(size_t{s.n_heads} * s.head_dim, 1.0f), random.uniform(kv, 2.0f),
          random.uniform(kv, 1.0f)};
}

void fill(HarnessState& state, RandomValues& random, const AttentionShape& s, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    const HarnessRow row = random_row(random, s, 0, -1);
    state.append(row.k.data(), row.v.data());
  }
}

std::vector<HarnessRow> chain(RandomValues& random, const AttentionShape& s, uint32_t held, uint32_t n) {
  std::vector<HarnessRow> rows;
  for (uint32_t i = 0; i < n; ++i)
    rows.push_back(random_row(random, s, static_cast<int32_t>(held + i), static_cast<int32_t>(i) - 1));
  return rows;
}

// Every row's parent is any earlier row or the state: branches, siblings, several roots.
std::vector<HarnessRow> tree(RandomValues& random, const AttentionShape& s, uint32_t held, uint32_t n) {
  std::vector<HarnessRow> rows;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t back = random.below(3) == 0 ? i : random.below(std::min(i, 4u) + 1);
    const int32_t parent = static_cast<int32_t>(i) - 1 - static_cast<int32_t>(back);
    const int32_t position = parent < 0 ? static_cast<int32_t>(held) : rows[static_cast<size_t>(parent)].position + 1;
    rows.push_back(random_row(random, s, position, parent < 0 ? -1 : parent));
  }
  return rows;
}

AttentionFn reference() { return attention_variants().back().fn; }

template <typename Fn>
void for_variants(Fn fn) {
  espalier::for_variants(attention_variants(), fn);
}

const Case kCases[] = {
    {{4, 1, 64, false}, KvType::f16}, {{4, 1, 64, false}, KvType::i8},  {{2, 2, 128, false}, KvType::f16},
    {{3, 1, 32, false}, KvType::f16}, {{5, 1, 24, false}, KvType::i8},  {{2, 1, 8, false}, KvType::f16},
    {{3, 3, 16, false}, KvType::i8},  {{6, 2, 80, false}, KvType::f16}, {{1, 1, 256, false}, KvType::f16},
    {{8, 1, 66, false}, KvType::i8},  {{2, 1, 6, false}, KvType::f16},  {{7, 1, 64, false}, KvType::f16},
};

// ---- the reference against plain double loops

// Softmax in double over the rounded K and V. The bound: a score of d terms in fp32 is off by at most (d/16 + 5) · u · Σ|q k|, an
// exp by a few u more; p is then off relatively by e = that + 4u, and a weighted mean by 2e · max|v| plus the chain's rounding.
void expect_near_double(const Case& c, uint32_t held, uint32_t n_rows) {
  RandomValues random(held * 7 + n_rows);
  HarnessState state(c.layout(), c.shape.n_kv_heads);
  const uint32_t dim = c.shape.head_dim, group = c.shape.n_heads / c.shape.n_kv_heads;
  std::vector<HarnessRow> keys = chain(random, c.shape, 0, held);
  for (const HarnessRow& key : keys) state.append(key.k.data(), key.v.data());
  const std::vector<HarnessRow> rows = chain(random, c.shape, held, n_rows);
  keys.insert(keys.end(), rows.begin(), rows.end());
  const std::vector<float> got = harness_attend(c.shape, c.layout(), reference(), {&state}, rows, 1);
  ASSERT_FALSE(got.empty());
  std::vector<std::byte> block(c.layout().bytes);
  std::vector<float> k(dim), v(dim);
  for (uint32_t r = 0; r < n_rows; ++r)
    for (uint32_t h = 0; h < c.shape.n_heads; ++h) {
      const float* q = rows[r].q.data() + h * dim;
      std::vector<double> o(dim, 0.0);
      double sum = 0, magnitude = 0, v_max = 0;
      for (uint32_t p = 0; p <= held + r; ++p) {
        kv_store(c.layout(), block.data(), 0, keys[p].k.data() + h / group * dim, keys[p].v.data() + h / group * dim);
        kv_load(c.layout(), block.data(), 0, k.data(), v.data());
        double s = 0, a = 0;
        for (uint32_t d = 0; d < dim; ++d) s += double{q[d]} * k[d], a += std::fabs(double{q[d]} * k[d]);
        magnitude = std::max(magnitude, a);
        const double weight = std::exp(s);
        sum += weight;
        for (uint32_t d = 0; d < dim; ++d) o[d] += weight * v[d], v_max = std::max(v_max, std::fabs(double{v[d]}));
      }
      const double u = 0x1p-24, e = (dim / 16 + 6) * u * magnitude + 8 * u;
      const double bound = (2 * e + (held + r + 8) * u) * v_max;
      for (uint32_t d = 0; d < dim; ++d)
        ASSERT_NEAR(got[(r * c.shape.n_heads + h) * dim + d], o[d] / sum, bound) << "held " << held << " row " << r;
    }
}

TEST(AttentionReference, is_near_plain_double_loops) {
  for (const Case& c : {kCases[0], kCases[1], kCases[4], kCases[5]})
    for (uint32_t held : {0u, 1u, 15u, 16u, 37u, 130u, 511u, 520u, 1030u}) expect_near_double(c, held, 3);
}

// ---- variants

TEST(Attention, every_variant_matches_reference) {
  std::vector<uint32_t> contexts;
  for (uint32_t h = 0; h <= 40; h += 3) contexts.push_back(h);
  for (uint32_t h : {120u, 127u, 128u, 129u, 140u, 505u, 511u, 512u, 513u, 520u, 1030u}) contexts.push_back(h);
  for (const Case& c : kCases)
    for (uint32_t held : contexts)
      for (uint32_t n : {1u, 5u}) {
        RandomValues random(held + n);
        HarnessState state(c.layout(), c.shape.n_kv_heads);
        fill(state, random, c.shape, held);
        const auto rows = tree(random, c.shape, held, n);
        const auto want = harness_attend(c.shape, c.layout(), reference(), {&state}, rows, 1);
        for_variants([&](AttentionFn fn) {
          expect_same_bits(harness_attend(c.shape, c.layout(), fn, {&state}, rows, 1), want,
                           "head_dim " + std::to_string(c.shape.head_dim) + " held " + std::to_string(held));
        });
      }
}

TEST(Attention, long_chains_and_wide_trees_match_reference) {
  for (const Case& c : {kCases[3], kCases[0], kCases[1], kCases[2], kCases[11]})
    for (uint32_t held : {0u, 500u})
      for (uint32_t n : {17u, c.shape.n_heads == 3 ? 140u : 40u})
        for (bool branches : {false, true}) {
          RandomValues random(held + n);
          HarnessState state(c.layout(), c.shape.n_kv_heads);
          fill(state, random, c.shape, held);
          const auto rows = branches ? tree(random, c.shape, held, n) : chain(random, c.shape, held, n);
          const auto want = harness_attend(c.shape, c.layout(), reference(), {&state}, rows, 1);
          for_variants([&](AttentionFn fn) {
            expect_same_bits(harness_attend(c.shape, c.layout(), fn, {&state}, rows, 1), want, std::to_string(n) + " rows");
          });
        }
}

TEST(Attention, bits_do_not_depend_on_how_work_is_cut) {
  for (const Case& c : {kCases[0], kCases[1], kCases[7]})
    for (uint32_t held : {700u, 1600u}) {
      RandomValues random(held);
      HarnessState state(c.layout(), c.shape.n_kv_heads);
      fill(state, random, c.shape, held);
      const auto rows = tree(random, c.shape, held, 3);
      const auto want = harness_attend(c.shape, c.layout(), reference(), {&state}, rows, 1);
      for (uint32_t threads : {2u, 3u, 64u})
        for_variants([&](AttentionFn fn) {
          expect_same_bits(harness_attend(c.shape, c.layout(), fn, {&state}, rows, threads), want,
                           std::to_string(threads) + " threads");
        });
    }
}

// ---- position, not slot

// A row of a tree gives the bits that it gives after its ancestors were committed, for every way in which they straddle tiles,
// pages and splits.
void expect_equal_to_serial(const Case& c, uint32_t held, const std::vector<HarnessRow>& rows, AttentionFn fn) {
  RandomValues random(held);
  HarnessState state(c.layout(), c.shape.n_kv_heads);
  fill(state, random, c.shape, held);
  const auto together = harness_attend(c.shape, c.layout(), fn, {&state}, rows, 1);
  ASSERT_FALSE(together.empty());
  const size_t width = size_t{c.shape.n_heads} * c.shape.head_dim;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<size_t> path;
    for (int32_t p = rows[r].parent; p >= 0; p = rows[static_cast<size_t>(p)].parent) path.insert(path.begin(), static_cast<size_t>(p));
    HarnessState serial = state;
    for (size_t p : path) serial.append(rows[p].k.data(), rows[p].v.data());
    HarnessRow alone = rows[r];
    alone.parent = -1;
    const auto want = harness_attend(c.shape, c.layout(), fn, {&serial}, {alone}, 1);
    expect_same_bits({together.begin() + static_cast<long>(r * width), together.begin() + static_cast<long>((r + 1) * width)},
                     want, "held " + std::to_string(held) + " row " + std::to_string(r));
  }
}

TEST(Attention, a_tree_gives_the_bits_of_serial_decoding) {
  for (const Case& c : {kCases[0], kCases[1], kCases[3]})
    for (uint32_t held : {0u, 1u, 7u, 15u, 16u, 31u, 121u, 127u, 128u, 505u, 509u, 511u, 512u, 1020u}) {
      RandomValues random(held + 99);
      const auto rows = tree(random, c.shape, held, 24);
      for_variants([&](AttentionFn fn) { expect_equal_to_serial(c, held, rows, fn); });
    }
}

TEST(Attention, every_straddle_of_a_chain_gives_the_bits_of_serial_decoding) {
  const Case& c = kCases[0];
  for (uint32_t held = 0; held <= 40; ++held) {
    RandomValues random(held + 5);
    const auto rows = chain(random, c.shape, held, 36);
    for_variants([&](AttentionFn fn) { expect_equal_to_serial(c, held, rows, fn); });
  }
  for (uint32_t held = 496; held <= 514; ++held) {
    RandomValues random(held + 5);
    const auto rows = chain(random, c.shape, held, 20);
    for_variants([&](AttentionFn fn) { expect_equal_to_serial(c, held, rows, fn); });
  }
}

TEST(Attention, a_committed_path_reads_as_it_did_in_the_call) {
  for (const Case& c : {kCases[0], kCases[1]})
    for (uint32_t held : {3u, 14u, 126u, 510u}) {
      RandomValues random(held);
      HarnessState state(c.layout(), c.shape.n_kv_heads);
      fill(state, random, c.shape, held);
      const auto rows = tree(random, c.shape, held, 40);
      HarnessRow next = random_row(random, c.shape, 0, 39);
      next.position = rows[39].position + 1;
      auto with_next = rows;
      with_next.push_back(next);
      const auto all = harness_attend(c.shape, c.layout(), reference(), {&state}, with_next, 1);
      std::vector<uint32_t> path;
      for (int32_t p = 39; p >= 0; p = rows[static_cast<size_t>(p)].parent) path.insert(path.begin(), static_cast<uint32_t>(p));
      state.commit(path);
      ASSERT_EQ(static_cast<int32_t>(state.held()), next.position);
      next.parent = -1;
      const auto alone = harness_attend(c.shape, c.layout(), reference(), {&state}, {next}, 1);
      expect_same_bits(alone, {all.end() - static_cast<long>(alone.size()), all.end()}, "held " + std::to_string(held));
    }
}

TEST(Attention, sequences_in_one_call_give_the_bits_of_each_alone) {
  const Case& c = kCases[0];
  RandomValues random(3);
  HarnessState a(c.layout(), 1), b(c.layout(), 1);
  fill(a, random, c.shape, 130);
  fill(b, random, c.shape, 5);
  const auto rows_a = tree(random, c.shape, 130, 9), rows_b = tree(random, c.shape, 5, 7);
  // Interleaved: a0 b0 a1 b1 …, parents renumbered.
  std::vector<HarnessRow> mixed;
  std::vector<int32_t> at_a, at_b;
  for (size_t i = 0; i < 9; ++i) {
    for (uint32_t s = 0; s < 2; ++s) {
      const auto& rows = s == 0 ? rows_a : rows_b;
      auto& at = s == 0 ? at_a : at_b;
      if (i >= rows.size()) continue;
      HarnessRow row = rows[i];
      row.sequence = s;
      if (row.parent >= 0) row.parent = at[static_cast<size_t>(row.parent)];
      at.push_back(static_cast<int32_t>(mixed.size()));
      mixed.push_back(row);
    }
  }
  const size_t width = size_t{c.shape.n_heads} * c.shape.head_dim;
  for_variants([&](AttentionFn fn) {
    const auto both = harness_attend(c.shape, c.layout(), fn, {&a, &b}, mixed, 2);
    const auto alone_a = harness_attend(c.shape, c.layout(), fn, {&a}, rows_a, 1);
    const auto alone_b = harness_attend(c.shape, c.layout(), fn, {&b}, rows_b, 1);
    for (size_t i = 0; i < mixed.size(); ++i) {
      const bool first = mixed[i].sequence == 0;
      const auto& at = first ? at_a : at_b;
      const size_t own = static_cast<size_t>(std::find(at.begin(), at.end(), static_cast<int32_t>(i)) - at.begin());
      const float* want = (first ? alone_a : alone_b).data() + own * width;
      expect_same_bits({both.begin() + static_cast<long>(i * width), both.begin() + static_cast<long>((i + 1) * width)},
                       {want, want + width}, "row " + std::to_string(i));
    }
  });
}

TEST(Attention, a_group_sees_all_its_rows_whatever_their_order) {
  AttentionShape shape{4, 2, 64, true};
  const KvLayout layout = kv_layout(KvType::f16, 64);
  for (uint32_t held : {0u, 21u, 510u}) {
    RandomValues random(held + 1);
    HarnessState state(layout, 2);
    fill(state, random, shape, held);
    std::vector<HarnessRow> rows = chain(random, shape, held, 27);
    for (HarnessRow& row : rows) row.parent = -1;
    const auto want = harness_attend(shape, layout, reference(), {&state}, rows, 1);
    std::vector<HarnessRow> shuffled;
    for (size_t i = 0; i < rows.size(); ++i) shuffled.push_back(rows[i * 10 % 27]);
    for_variants([&](AttentionFn fn) {
      expect_same_bits(harness_attend(shape, layout, fn, {&state}, rows, 1), want, "in order");
      const auto got = harness_attend(shape, layout, fn, {&state}, shuffled, 1);
      for (size_t i = 0; i < rows.size(); ++i) {
        const size_t from = i * 10 % 27 * 256;
        expect_same_bits({got.begin() + static_cast<long>(i * 256), got.begin() + static_cast<long>((i + 1) * 256)},
                         {want.begin() + static_cast<long>(from), want.begin() + static_cast<long>(from + 256)}, "shuffled");
      }
    });
  }
}

TEST(Attention, positions_of_a_path_may_have_gaps) {
  const Case& c = kCases[0];
  RandomValues random(8);
  HarnessState state(c.layout(), 1);
  fill(state, random, c.shape, 20);
  std::vector<HarnessRow> rows = chain(random, c.shape, 20, 8);
  const int32_t positions[] = {23, 24, 40, 300, 511, 512, 2000, 2001};
  for (size_t i = 0; i < 8; ++i) rows[i].position = positions[i];
  const auto want = harness_attend(c.shape, c.layout(), reference(), {&state}, rows, 1);
  for (uint32_t threads : {1u, 4u})
    for_variants([&](AttentionFn fn) {
      expect_same_bits(harness_attend(c.shape, c.layout(), fn, {&state}, rows, threads), want, "gaps");
    });
}

TEST(Attention, a_non_finite_key_or_value_makes_its_readers_non_finite) {
  for (const Case& c : {kCases[0], kCases[1]})
    for (const float bad : {std::nanf(""), HUGE_VALF}) {
      RandomValues random(2);
      HarnessState state(c.layout(), 1);
      fill(state, random, c.shape, 40);
      auto rows = chain(random, c.shape, 40, 3);
      rows[1].v[5] = bad;
      for_variants([&](AttentionFn fn) {
        const auto out = harness_attend(c.shape, c.layout(), fn, {&state}, rows, 1);
        EXPECT_TRUE(std::isfinite(out[5]));
        EXPECT_FALSE(std::isfinite(out[256 + 5]));
        EXPECT_FALSE(std::isfinite(out[512 + 5]));
      });
    }
}

// ---- plans

TEST(AttentionPlan, refuses_rows_that_break_the_contract) {
  const AttentionShape shape{4, 1, 64, false}, group{4, 1, 64, true};
  const uint32_t held[] = {10, 0};
  const auto refused = [&](const AttentionShape& s, std::vector<AttentionRowIn> rows) {
    return !make_attention_plan(s, rows, held, 2).ok();
  };
  EXPECT_FALSE(refused(shape, {{0, 10, -1}, {0, 11, 0}, {1, 0, -1}}));
  EXPECT_TRUE(refused(shape, {{2, 10, -1}}));
  EXPECT_TRUE(refused(shape, {{0, 9, -1}}));
  EXPECT_TRUE(refused(shape, {{0, 10, 0}}));
  EXPECT_TRUE(refused(shape, {{0, 10, -1}, {1, 11, 0}}));
  EXPECT_TRUE(refused(shape, {{0, 10, -1}, {0, 10, 0}}));
  EXPECT_FALSE(refused(group, {{0, 12, -1}, {0, 11, -1}}));
  EXPECT_TRUE(refused(group, {{0, 12, -1}, {0, 12, -1}}));
  EXPECT_TRUE(make_attention_plan(shape, {}, {}, 2)->items.empty());
}

TEST(AttentionPlan, a_chain_is_one_run_a_row) {
  const AttentionShape shape{4, 1, 64, false};
  std::vector<AttentionRowIn> rows;
  for (int32_t i = 0; i < 100; ++i) rows.push_back({0, 7 + i, i - 1});
  const uint32_t held[] = {7};
  const AttentionPlan plan = *make_attention_plan(shape, rows, held, 1);
  ASSERT_EQ(plan.runs.size(), 100u);
  EXPECT_EQ(plan.runs[99].position, 7u);
  EXPECT_EQ(plan.runs[99].count, 100u);
}

// ---- pages

TEST(KvPage, int8_values_survive_reading_and_writing_again) {
  RandomValues random(4);
  for (uint32_t dim : {1u, 8u, 64u, 80u}) {
    const KvLayout layout = kv_layout(KvType::i8, dim);
    std::vector<std::byte> first(layout.bytes), second(layout.bytes);
    for (uint32_t i = 0; i < 2000; ++i) {
      const float scale = std::ldexp(1.0f, static_cast<int>(random.below(60)) - 40);
      std::vector<float> k = random.uniform(dim, scale), v = random.uniform(dim, scale), k2(dim), v2(dim), k3(dim), v3(dim);
      kv_store(layout, first.data(), 77, k.data(), v.data());
      kv_load(layout, first.data(), 77, k2.data(), v2.data());
      kv_store(layout, second.data(), 77, k2.data(), v2.data());
      kv_load(layout, second.data(), 77, k3.data(), v3.data());
      ASSERT_EQ(k2, k3);
      ASSERT_EQ(v2, v3);
      ASSERT_EQ(first, second);
      const float a = *std::max_element(k.begin(), k.end(), [](float x, float y) { return std::fabs(x) < std::fabs(y); });
      for (uint32_t d = 0; d < dim; ++d) ASSERT_LE(std::fabs(k2[d] - k[d]), std::fabs(a) / 127 * 0.502f);
    }
  }
}

TEST(KvPage, fp16_rounds_to_nearest_even_and_lanes_do_not_touch) {
  const KvLayout layout = kv_layout(KvType::f16, 10);
  std::vector<std::byte> block(layout.bytes);
  RandomValues random(5);
  std::vector<std::vector<float>> ks, vs;
  for (uint32_t lane = 0; lane < 128; ++lane) {
    ks.push_back(random.uniform(10, 3.0f)), vs.push_back(random.uniform(10, 3.0f));
    kv_store(layout, block.data(), lane, ks.back().data(), vs.back().data());
  }
  std::vector<float> k(10), v(10);
  for (uint32_t lane = 0; lane < 128; ++lane) {
    kv_load(layout, block.data(), lane, k.data(), v.data());
    for (uint32_t d = 0; d < 10; ++d) {
      EXPECT_EQ(k[d], f16_to_f32(f32_to_f16(ks[lane][d])));
      EXPECT_EQ(v[d], f16_to_f32(f32_to_f16(vs[lane][d])));
    }
  }
}

TEST(KvPage, a_copy_moves_lanes_as_they_are) {
  for (KvType type : {KvType::f16, KvType::i8}) {
    const KvLayout layout = kv_layout(type, 24);
    std::vector<std::byte> block(layout.bytes);
    RandomValues random(6);
    for (uint32_t lane = 0; lane < 128; ++lane)
      kv_store(layout, block.data(), lane, random.uniform(24, 1).data(), random.uniform(24, 1).data());
    std::vector<std::byte> moved = block;
    kv_copy(layout, moved.data(), 20, moved.data(), 3, 60);
    std::vector<float> k(24), v(24), k2(24), v2(24);
    for (uint32_t lane = 0; lane < 128; ++lane) {
      const bool inside = lane >= 3 && lane < 63;
      kv_load(layout, block.data(), inside ? lane + 17 : lane, k.data(), v.data());
      kv_load(layout, moved.data(), lane, k2.data(), v2.data());
      EXPECT_EQ(k, k2);
      EXPECT_EQ(v, v2);
    }
  }
}

TEST(KvPage, int8_zeros_and_non_finite_rows) {
  const KvLayout layout = kv_layout(KvType::i8, 4);
  std::vector<std::byte> block(layout.bytes);
  std::vector<float> k(4), v(4);
  const float tiny[] = {0x1p-101f, 0, -0x1p-120f, 0}, bad[] = {1, NAN, 2, 3}, infinite[] = {1, -HUGE_VALF, 2, 3};
  kv_store(layout, block.data(), 9, tiny, bad);
  kv_load(layout, block.data(), 9, k.data(), v.data());
  for (float x : k) EXPECT_EQ(x, 0.0f);
  for (float x : v) EXPECT_NE(x, x);
  kv_store(layout, block.data(), 9, infinite, tiny);
  kv_load(layout, block.data(), 9, k.data(), v.data());
  for (float x : k) EXPECT_FALSE(std::isfinite(x));
}

}  // namespace
}  // namespace espalier
