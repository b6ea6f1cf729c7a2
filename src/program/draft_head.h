// What follows a drafter's block: the bias that a token puts on its successor, and the confidence (arXiv 2607.05147).
// Plain numbers; the arithmetic is src/decode/markov_head.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace espalier {

// Rows of floats as a file holds them: the two tables of a head are its bulk (131 MB in bf16 at 128,000 x 256), so they are
// read where they lie. Copies share the memory. Immutable, thread-safe.
struct FloatTable {
  enum class Type : uint8_t { f32, f16, bf16 };
  Type type = Type::f32;
  int32_t rows = 0, cols = 0;
  const std::byte* data = nullptr;    // row-major, any alignment
  std::shared_ptr<const void> owner;  // null: the checkpoint that it was read from, which must outlive it
};
// A table of its own numbers. Requires: rows * cols values.
FloatTable float_table(std::vector<float> values, int32_t rows, int32_t cols);
// Row `row` as fp32, exactly. Requires: 0 <= row < rows; out (cols).
void read_row(const FloatTable& table, int32_t row, float* out);

enum class MarkovKind : uint8_t { none, vanilla, gated, rnn };

struct DraftHead {
  MarkovKind kind = MarkovKind::none;
  int32_t vocabulary = 0, hidden = 0;
  int32_t rank = 0;                             // 0 where the kind is none
  FloatTable w1;                                // (vocabulary, rank): looked up by the parent's token
  FloatTable w2;                                // (vocabulary, rank): bias[v] = w2[v] . direction
  std::vector<float> gate_weight, gate_bias;    // gated: (rank, hidden + rank), (rank)
  std::vector<float> joint_weight, joint_bias;  // rnn: (3 rank, 2 rank + hidden), (3 rank)
  std::vector<float> confidence_weight;         // (hidden), or (hidden + rank) where confidence_with_markov; empty: none
  float confidence_bias = 0;
  bool confidence_with_markov = false;

  bool has_confidence() const { return !confidence_weight.empty(); }
};

}  // namespace espalier
