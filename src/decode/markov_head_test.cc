#include "decode/markov_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace espalier {
namespace {

// splitmix64; with scale 1 numbers in [-1, 1) that bf16 and fp16 hold exactly.
class Numbers {
 public:
  explicit Numbers(uint64_t seed, float scale = 1) : s_(seed), scale_(scale) {}
  float next() {
    uint64_t z = (s_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return scale_ * static_cast<float>(static_cast<int32_t>((z ^ (z >> 31)) & 0xff) - 128) / 128.0f;
  }
  std::vector<float> some(size_t n) {
    std::vector<float> out(n);
    for (float& x : out) x = next();
    return out;
  }

 private:
  uint64_t s_;
  float scale_;
};
constexpr float kUneven = 0.7310586f;  // as a scale: sums of products are rounded, so their order shows

FloatTable table_as(FloatTable::Type type, const std::vector<float>& values, int32_t rows, int32_t cols) {
  if (type == FloatTable::Type::f32) return float_table(values, rows, cols);
  auto halves = std::make_shared<std::vector<uint16_t>>();
  for (float f : values) halves->push_back(type == FloatTable::Type::bf16 ? f32_to_bf16(f) : f32_to_f16(f));
  return {type, rows, cols, reinterpret_cast<const std::byte*>(halves->data()), halves};
}

// The numbers of a head apart from it, for loops in double.
struct Made {
  DraftHead head;
  std::vector<float> w1, w2;
};

Made make_head(MarkovKind kind, int32_t vocabulary = 75, int32_t rank = 37, int32_t hidden = 21, FloatTable::Type type = FloatTable::Type::f32,
               float scale = 1) {
  Numbers numbers(3 + static_cast<uint64_t>(rank), scale);
  Made m;
  DraftHead& h = m.head;
  h.kind = kind;
  h.vocabulary = vocabulary;
  h.hidden = hidden;
  h.rank = kind == MarkovKind::none ? 0 : rank;
  const size_t r = static_cast<size_t>(rank), d = static_cast<size_t>(hidden), v = static_cast<size_t>(vocabulary);
  m.w1 = numbers.some(v * r);
  m.w2 = numbers.some(v * r);
  if (kind != MarkovKind::none) {
    h.w1 = table_as(type, m.w1, vocabulary, rank);
    h.w2 = table_as(type, m.w2, vocabulary, rank);
  }
  if (kind == MarkovKind::gated) {
    h.gate_weight = numbers.some(r * (d + r));
    h.gate_bias = numbers.some(r);
  }
  if (kind == MarkovKind::rnn) {
    h.joint_weight = numbers.some(3 * r * (2 * r + d));
    h.joint_bias = numbers.some(3 * r);
  }
  h.confidence_with_markov = kind != MarkovKind::none;
  h.confidence_weight = numbers.some(d + (h.confidence_with_markov ? r : 0));
  h.confidence_bias = numbers.next();
  return m;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<double> affine(const std::vector<float>& w, const std::vector<float>& b, const std::vector<double>& x) {
  std::vector<double> y(b.begin(), b.end());
  for (size_t r = 0; r < y.size(); ++r)
    for (size_t i = 0; i < x.size(); ++i) y[r] += double{w[r * x.size() + i]} * x[i];
  return y;
}

// Spec 3.5 in double: the direction after a token, and the memory that it leaves.
struct PlainLead {
  std::vector<double> direction, memory;
};
PlainLead plain_lead(const Made& m, int32_t token, const std::vector<float>& g, std::vector<double> memory) {
  const DraftHead& h = m.head;
  const size_t r = static_cast<size_t>(h.rank);
  const std::vector<double> e(m.w1.begin() + token * h.rank, m.w1.begin() + (token + 1) * h.rank);
  std::vector<double> x;
  if (h.kind == MarkovKind::vanilla) return {e, {}};
  if (h.kind == MarkovKind::gated) {
    x.assign(g.begin(), g.end());
    x.insert(x.end(), e.begin(), e.end());
    const std::vector<double> gate = affine(h.gate_weight, h.gate_bias, x);
    PlainLead out{e, {}};
    for (size_t i = 0; i < r; ++i) out.direction[i] *= sigmoid(gate[i]);
    return out;
  }
  memory.resize(r);
  x = memory;
  x.insert(x.end(), e.begin(), e.end());
  x.insert(x.end(), g.begin(), g.end());
  const std::vector<double> parts = affine(h.joint_weight, h.joint_bias, x);
  PlainLead out;
  for (size_t i = 0; i < r; ++i) {
    out.memory.push_back(sigmoid(parts[i]) * memory[i] + (1 - sigmoid(parts[i])) * std::tanh(parts[r + i]));
    out.direction.push_back(std::tanh(parts[2 * r + i]));
  }
  return out;
}

std::vector<double> plain_bias(const Made& m, const PlainLead& lead) {
  std::vector<double> out(static_cast<size_t>(m.head.vocabulary));
  for (size_t v = 0; v < out.size(); ++v)
    for (size_t i = 0; i < lead.direction.size(); ++i) out[v] += double{m.w2[v * lead.direction.size() + i]} * lead.direction[i];
  return out;
}

// fp32 sums of at most 37 + 37 + 21 terms below 1, and functions with errors of a few ulp.
constexpr double kTolerance = 2e-5;

TEST(MarkovHead, every_kind_equals_the_formulas_along_a_path) {
  for (MarkovKind kind : {MarkovKind::vanilla, MarkovKind::gated, MarkovKind::rnn}) {
    const Made m = make_head(kind, 75, 37, 21, FloatTable::Type::f32, kUneven);
    const MarkovHead head(m.head);
    Numbers numbers(9, kUneven);
    MarkovHead::Lead before, lead;
    PlainLead plain;
    for (int step = 0; step < 5; ++step) {
      const int32_t token = 7 * step + 2;
      const std::vector<float> g = numbers.some(21);
      head.lead(token, g, step == 0 ? nullptr : &before, lead);
      plain = plain_lead(m, token, g, plain.memory);
      const std::vector<double> expected = plain_bias(m, plain);
      std::vector<float> all(75);
      head.bias(lead, all);
      for (size_t v = 0; v < all.size(); ++v) EXPECT_NEAR(all[v], expected[v], kTolerance);
      const std::vector<int32_t> ids = {74, 0, 13, 13, 31};
      std::vector<float> some(ids.size());
      head.bias(lead, ids, some);
      for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(some[i], all[static_cast<size_t>(ids[i])]) << "no bit depends on which ids are asked for";
      std::swap(before, lead);
    }
  }
}

TEST(MarkovHead, confidence_equals_its_formula) {
  const Made m = make_head(MarkovKind::vanilla);
  const std::vector<float> g = Numbers(4).some(21);
  double x = double{m.head.confidence_bias};
  for (size_t i = 0; i < 21; ++i) x += double{m.head.confidence_weight[i]} * double{g[i]};
  for (size_t i = 0; i < 37; ++i) x += double{m.head.confidence_weight[21 + i]} * double{m.w1[5 * 37 + i]};
  EXPECT_NEAR(MarkovHead(m.head).confidence(5, g), sigmoid(x), 1e-6);
  DraftHead without = m.head;
  without.confidence_weight.clear();
  EXPECT_EQ(MarkovHead(without).confidence(5, g), 1.0f);
}

TEST(MarkovHead, every_table_type_gives_the_same_bits) {
  for (int32_t rank : {1, 15, 16, 17, 64}) {
    std::vector<std::vector<float>> biases;
    for (FloatTable::Type type : {FloatTable::Type::f32, FloatTable::Type::f16, FloatTable::Type::bf16}) {
      const Made m = make_head(MarkovKind::vanilla, 75, rank, 21, type);
      MarkovHead head(m.head);
      MarkovHead::Lead lead;
      head.lead(11, {}, nullptr, lead);
      std::vector<float> all(75);
      head.bias(lead, all);
      biases.push_back(all);
    }
    EXPECT_EQ(biases[0], biases[1]) << rank;
    EXPECT_EQ(biases[0], biases[2]) << rank;
  }
}

TEST(MarkovHead, halves_of_every_pattern_are_widened_exactly) {
  std::vector<uint16_t> all;
  for (uint32_t h = 0; h < 0x10000; ++h)
    if ((h & 0x7c00u) != 0x7c00u) all.push_back(static_cast<uint16_t>(h));
  DraftHead head;
  head.kind = MarkovKind::vanilla;
  head.vocabulary = static_cast<int32_t>(all.size());
  head.rank = 1;
  head.w1 = float_table(std::vector<float>(all.size(), 1.0f), head.vocabulary, 1);
  head.w2 = {FloatTable::Type::f16, head.vocabulary, 1, reinterpret_cast<const std::byte*>(all.data()), nullptr};
  MarkovHead markov(head);
  MarkovHead::Lead lead;
  markov.lead(0, {}, nullptr, lead);
  std::vector<float> bias(all.size());
  markov.bias(lead, bias);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(bias[i], f16_to_f32(all[i])) << i;
}

TEST(MarkovHead, top_is_the_best_of_all_and_prepare_gives_the_same) {
  for (MarkovKind kind : {MarkovKind::vanilla, MarkovKind::gated, MarkovKind::rnn})
    for (int32_t vocabulary : {5, 75}) {
      const Made m = make_head(kind, vocabulary);
      MarkovHead one(m.head), many(m.head);
      const std::vector<int32_t> tokens = {4, 0, 2, 4};
      many.prepare(tokens);
      for (int32_t token : tokens) {
        const auto top = one.top(token);
        MarkovHead::Lead lead;
        one.lead(token, std::vector<float>(21), nullptr, lead);
        std::vector<float> all(static_cast<size_t>(vocabulary));
        one.bias(lead, all);
        std::vector<TopEntry> sorted;
        for (int32_t v = 0; v < vocabulary; ++v) sorted.push_back({v, all[static_cast<size_t>(v)]});
        std::sort(sorted.begin(), sorted.end(), [](const TopEntry& a, const TopEntry& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
        sorted.resize(std::min<size_t>(sorted.size(), MarkovHead::kTop));
        EXPECT_EQ(std::vector<TopEntry>(top.begin(), top.end()), sorted);
        const auto prepared = many.top(token);
        EXPECT_TRUE(std::equal(top.begin(), top.end(), prepared.begin(), prepared.end()));
      }
    }
}

TEST(MarkovHead, equal_biases_go_by_id_and_damaged_rows_are_left_out) {
  DraftHead head;
  head.kind = MarkovKind::vanilla;
  head.vocabulary = 100;
  head.rank = 1;
  head.w1 = float_table(std::vector<float>(100, 1.0f), 100, 1);
  std::vector<float> w2(100, 2.0f);
  w2[3] = std::numeric_limits<float>::quiet_NaN();
  head.w2 = float_table(w2, 100, 1);
  MarkovHead markov(head);
  const auto top = markov.top(0);
  ASSERT_EQ(top.size(), MarkovHead::kTop);
  for (size_t i = 0; i < top.size(); ++i) EXPECT_EQ(top[i].id, static_cast<int32_t>(i < 3 ? i : i + 1));
}

TEST(MarkovHead, a_head_of_kind_none_adds_nothing) {
  const Made m = make_head(MarkovKind::none);
  MarkovHead head(m.head);
  MarkovHead::Lead lead;
  head.lead(3, {}, nullptr, lead);
  std::vector<float> bias(75, 1.0f);
  head.bias(lead, bias);
  EXPECT_EQ(bias, std::vector<float>(75));
  EXPECT_TRUE(head.top(3).empty());
  EXPECT_GT(head.confidence(3, std::vector<float>(21)), 0.0f);
}

// The bits are those of every machine and compiler.
TEST(MarkovHead, bits_are_pinned) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (MarkovKind kind : {MarkovKind::vanilla, MarkovKind::gated, MarkovKind::rnn}) {
    const Made m = make_head(kind, 75, 37, 21, FloatTable::Type::f32, kUneven);
    const MarkovHead head(m.head);
    MarkovHead::Lead lead;
    const std::vector<float> g = Numbers(1, kUneven).some(21);
    head.lead(6, g, nullptr, lead);
    std::vector<float> all(75);
    head.bias(lead, all);
    all.push_back(head.confidence(6, g));
    for (float f : all) hash = (hash ^ std::bit_cast<uint32_t>(f)) * 0x100000001b3ull;
  }
  EXPECT_EQ(hash, 15059049956955976067u);
}

}  // namespace
}  // namespace espalier
