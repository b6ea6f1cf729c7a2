// Loops of the primitives over row-major fp32. Internal to evaluate.cc; compiled with optimisation in every build.
#pragma once

#include <span>

#include "lower/evaluate.h"
#include "lower/lowered.h"

namespace espalier::evaluating {

struct View {
  const float* data;
  const Shape* shape;
};

// out (batches, M, N) = a (batches or 1, M, K) * b (batches or 1, K, N), by `arithmetic`; rows [begin, end) of batches * M.
struct Product {
  const float* a;
  const float* b;
  float* out;
  size_t m, k, n;
  std::vector<size_t> a_batch, b_batch;  // by batch: index of its matrix
};
void multiply(const Product& p, Arithmetic arithmetic, size_t begin, size_t end);

void binary(Primitive kind, View a, View b, const Shape& out_shape, float* out);
// `wide`: in double, rounded once; else each step in fp32.
void unary(Primitive kind, View x, bool wide, float* out);
// Softmax, reductions, argmax along an axis; `wide`: sums in double.
void along_axis(Primitive kind, View x, int32_t axis, bool wide, float* out);
void transpose(View x, std::span<const int32_t> order, const Shape& out_shape, float* out);
// Copies `length` of `axis` from `from` on into `to` on.
void copy_axis(View x, int32_t from, int32_t length, int32_t axis, int32_t to, const Shape& out_shape, float* out);
// (1, channels, 1, rows): each row's values as whole numbers of 1/127 of its largest.
std::vector<float> int8_rows(View x);
// To fp16 and back, in place.
void round_f16(std::span<float> values, float flush_below, RangeCount& count);

}  // namespace espalier::evaluating
