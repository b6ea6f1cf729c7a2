#include "lower/lower_attention.h"

#include <algorithm>

namespace espalier::lowering {

using P = Primitive;

int32_t state_index(const LoweredProgram& program, StateId source, const char* part) {
  for (size_t i = 0; i < program.states.size(); ++i) {
    const LoweredState& s = program.states[i];
    if (s.source == source && (!s.is_kv || s.name.ends_with(part))) return static_cast<int32_t>(i);
  }
  return kNone;
}

// Bucket columns, then the window's rows.
ValueId Attention::keys(int32_t state, ValueId rows) { return state == kNone ? rows : b_.concat({b_.read_state(state), rows}, 3); }

ValueId Attention::attend(const AttentionAttr& a, StateId state, ValueId q, ValueId k, ValueId v) {
  const int32_t w = spec_.rows, hd = a.head_dim, group = a.n_heads / a.n_kv_heads;
  const bool held = state != kNone;
  const int32_t n = w + (held ? spec_.bucket : 0);
  const ValueId mask = b_.input("mask", {1, 1, n, w});
  const ValueId k_all = b_.reshape(keys(held ? state_index(p_, state, ".k") : kNone, k), {1, a.n_kv_heads, hd, n});
  const ValueId k_t = b_.transpose(k_all, {0, 1, 3, 2});
  ValueId v_all = b_.reshape(keys(held ? state_index(p_, state, ".v") : kNone, v), {1, a.n_kv_heads, hd, n});
  const bool chunked = options_.attention_chunks > 1;
  if (chunked) v_all = b_.transpose(v_all, {0, 1, 3, 2});  // parts are cut off the second last axis, never off the last
  const ValueId q_heads = b_.reshape(q, {1, a.n_heads, hd, w});
  std::vector<ValueId> heads;
  for (int32_t j = 0; j < a.n_kv_heads; ++j) {
    const ValueId k_head = b_.slice(k_t, 1, j, 1), v_head = b_.slice(v_all, 1, j, 1);
    for (int32_t h = j * group; h < (j + 1) * group; ++h) {
      const ValueId q_head = b_.slice(q_heads, 1, h, 1);
      heads.push_back(chunked ? in_chunks(q_head, k_head, v_head, mask) : whole(q_head, k_head, v_head, mask));
    }
  }
  return b_.reshape(b_.concat(std::move(heads), 1), {1, a.n_heads * hd, 1, w});
}

ValueId Attention::whole(ValueId q, ValueId keys, ValueId values, ValueId mask) {
  const ValueId scores = b_.binary(P::add, b_.binary(P::matmul, keys, q), mask);
  return b_.binary(P::matmul, values, b_.along(P::softmax, scores, 2));
}

// Each part has its own largest score m, weights e^(s - m), their sum and the weighted values; the parts are merged by e^(m - M).
ValueId Attention::in_chunks(ValueId q, ValueId keys, ValueId values_t, ValueId mask) {
  const int32_t n = b_.shape(keys)[2];
  const int32_t even = (n + options_.attention_chunks - 1) / options_.attention_chunks;
  const int32_t part = (even + 31) / 32 * 32;
  std::vector<ValueId> m, l, o;
  for (int32_t first = 0; first < n; first += part) {
    const int32_t length = std::min(part, n - first);
    const ValueId product = b_.binary(P::matmul, b_.slice(keys, 2, first, length), q);
    const ValueId scores = b_.binary(P::add, product, b_.slice(mask, 2, first, length));
    m.push_back(b_.along(P::reduce_max, scores, 2));
    const ValueId p = b_.unary(P::exp, b_.binary(P::sub, scores, m.back()));
    l.push_back(b_.along(P::reduce_sum, p, 2));
    o.push_back(b_.binary(P::matmul, b_.transpose(b_.slice(values_t, 2, first, length), {0, 1, 3, 2}), p));
  }
  ValueId largest = m[0];
  for (size_t i = 1; i < m.size(); ++i) largest = b_.binary(P::maximum, largest, m[i]);
  ValueId sum = kNone, weighted = kNone;
  for (size_t i = 0; i < m.size(); ++i) {
    const ValueId w = b_.unary(P::exp, b_.binary(P::sub, m[i], largest));
    const ValueId lw = b_.binary(P::mul, l[i], w), ow = b_.binary(P::mul, o[i], w);
    sum = i == 0 ? lw : b_.binary(P::add, sum, lw);
    weighted = i == 0 ? ow : b_.binary(P::add, weighted, ow);
  }
  return b_.binary(P::div, weighted, sum);
}

void Attention::keep(StateId state, ValueId k, ValueId v) {
  keep_one(state_index(p_, state, ".k"), k);
  keep_one(state_index(p_, state, ".v"), v);
}

void Attention::keep_one(int32_t state, ValueId rows) {
  const int32_t w = spec_.rows, c = spec_.bucket;
  switch (options_.kv) {
    case KvForm::delta: b_.output(p_.states[static_cast<size_t>(state)].name, rows); return;
    case KvForm::dynamic: {
      const ValueId offset = b_.input("offset", {1, 1, 1, 1}, ScalarType::i32);
      b_.write_state(state, b_.update_block(b_.read_state(state), rows, offset, 3));
      return;
    }
    case KvForm::place: break;
  }
  const ValueId kept = b_.binary(P::mul, b_.read_state(state), b_.input("keep", {1, 1, 1, c}));
  const ValueId placed = b_.binary(P::matmul, rows, b_.input("place", {1, 1, w, c}));
  b_.write_state(state, b_.binary(P::add, kept, placed));
}

}  // namespace espalier::lowering
