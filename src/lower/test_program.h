// For tests of what is made of lowered programs: one attention layer, its functions and its weights.
#pragma once

#include <memory>
#include <span>

#include "lower/lower.h"
#include "program/builder.h"
#include "program/weight_set.h"

namespace espalier::test {

inline Program one_layer() {
  ProgramBuilder b("small", 1, 32, 64);
  b.function(Role::step);
  const ValueId h = b.embed(b.matrix("embed", 64, 32));
  b.layer(0);
  const ValueId q = b.linear(h, b.matrix("q", 32, 32)), k = b.linear(h, b.matrix("k", 32, 32));
  const auto qk = b.qk_norm_rope({q, k}, kNone, kNone, {1, 1, 32, 1e-5f, 0.25f, b.rope({10000.0, 32})});
  b.output("layer.0", b.add(h, b.attention(qk, b.linear(h, b.matrix("v", 32, 32)), b.kv_state(0, 1, 32), {1, 1, 32, MaskKind::ancestors, true})));
  return std::move(b).finish().value();
}

inline LoweredProgram lowered(const Program& program, std::vector<int32_t> buckets, KvForm kv = KvForm::place) {
  LowerOptions o;
  o.kv = kv;
  o.weights = ScalarType::i8;
  for (int32_t bucket : buckets) o.functions.push_back({Role::step, 32, bucket, HeadRows::none, HeadForm::maxima});
  return lower(program, o).value();
}

// Rows of a matrix that are all different.
inline WeightSet weights_of(const Program& program) {
  WeightSet set;
  for (const WeightDecl& d : program.weights) {
    auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(d.rows) * static_cast<size_t>(d.cols));
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<float>((i * 37 + i / 32) % 101) / 50.0f - 1.0f;
    WeightSet::Entry entry;
    const uint64_t rows = static_cast<uint64_t>(d.rows), cols = static_cast<uint64_t>(d.cols);
    entry.matrix = SourceMatrix::make(TensorView{d.name, StorageType::f32, {rows, cols}, std::as_bytes(std::span(*values))}, rows, cols).value();
    set.entries.push_back(std::move(entry));
    set.owners.push_back(values);
  }
  return set;
}

}  // namespace espalier::test
