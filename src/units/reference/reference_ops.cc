#include "units/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>


namespace espalier::reference {
namespace {

// Eight double chains by index, so that the compiler can use its vector unit; the order is fixed.
float dot(const float* a, const float* b, size_t n) {
  double lane[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; ++j) lane[j] += static_cast<double>(a[i + j]) * b[i + j];
  for (size_t j = 0; i < n; ++i, ++j) lane[j] += static_cast<double>(a[i]) * b[i];
  return static_cast<float>(((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])));
}

template <typename Fn>
void split(size_t n, int threads, Fn fn) {
  const size_t parts = std::min<size_t>(static_cast<size_t>(threads), n / 64 + 1);
  std::vector<std::thread> team;
  for (size_t p = 1; p < parts; ++p) team.emplace_back([=] { fn(n * p / parts, n * (p + 1) / parts); });
  fn(0, n / parts);
  for (std::thread& t : team) t.join();
}

void rms(const float* x, const float* w, float* y, size_t n, float eps) {
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double r = 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(eps));
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<float>(static_cast<double>(x[i]) * r * static_cast<double>(w[i]));
}

void append(std::vector<float>& to, const float* from, size_t n) { to.insert(to.end(), from, from + n); }

}  // namespace

Executor::Executor(const Program& program, const Tensors& tensors, const Call& call, int threads)
    : program_(program), tensors_(tensors), call_(call), function_(*program.find(call.function.role)), threads_(threads) {
  for (const RopeSpec& spec : program.ropes) ropes_.emplace_back(spec);
  values_.resize(function_.values.size());
  entry_.resize(rows());
  for (size_t s = 0; s < call.states.size(); ++s) {
    const auto* st = static_cast<const ReferenceState*>(call.states[s]);
    for (size_t e = 0; e < st->rows.entries().size(); ++e) entry_[static_cast<size_t>(st->rows.entries()[e].call_row)] = static_cast<int32_t>(e);
  }
}

Status Executor::run() {
  call_.out->clear();
  load_inputs();
  for (const Op& op : function_.ops) {
    if (call_.function.segment != kNone && op.segment != call_.function.segment) continue;
    for (ValueId v : op.out)
      if (v != kNone) values_[static_cast<size_t>(v)].resize(rows() * static_cast<size_t>(width(v)));
    ESPALIER_TRY(run_op(op));
    copy_taps(op);
  }
  copy_edges();
  return {};
}

void Executor::load_inputs() {
  for (const Port& in : function_.inputs) {
    if (call_.function.segment != kNone && in.segment != call_.function.segment) continue;
    for (const NamedTensor& t : call_.inputs)
      if (t.name == in.name) values_[static_cast<size_t>(in.value)].assign(t.data, t.data + rows() * static_cast<size_t>(t.width));
  }
}

Status Executor::run_op(const Op& op) {
  switch (op.kind()) {
    case OpKind::embed: embed(op); return {};
    case OpKind::rms_norm: rms_norm(op); return {};
    case OpKind::linear: linear(op); return {};
    case OpKind::short_conv: short_conv(op); return {};
    case OpKind::qk_norm_rope: qk_norm_rope(op); return {};
    case OpKind::attention: attention(op); return {};
    case OpKind::swiglu: swiglu(op); return {};
    case OpKind::add: add(op); return {};
    case OpKind::head: return head(op);
  }
  return {Code::internal, "unknown op"};
}

void Executor::embed(const Op& op) {
  const size_t n = static_cast<size_t>(width(op.out[0]));
  for (size_t r = 0; r < rows(); ++r) std::copy_n(weight(op.weights[0]) + static_cast<size_t>(call_.rows[r].token) * n, n, at(op.out[0], r));
}

void Executor::rms_norm(const Op& op) {
  for (size_t r = 0; r < rows(); ++r)
    rms(at(op.in[0], r), weight(op.weights[0]), at(op.out[0], r), static_cast<size_t>(width(op.in[0])), std::get<RmsNormAttr>(op.attr).eps);
}

void Executor::linear(const Op& op) {
  const size_t k = static_cast<size_t>(width(op.in[0])), n = static_cast<size_t>(width(op.out[0]));
  const float* w = weight(op.weights[0]);
  const float* bias = weight(op.weights[1]);
  split(n, threads_, [&](size_t first, size_t last) {
    for (size_t o = first; o < last; ++o)
      for (size_t r = 0; r < rows(); ++r) at(op.out[0], r)[o] = dot(w + o * k, at(op.in[0], r), k) + (bias != nullptr ? bias[o] : 0.0f);
  });
}

void Executor::short_conv(const Op& op) {
  const ShortConvAttr& a = std::get<ShortConvAttr>(op.attr);
  const size_t n = static_cast<size_t>(width(op.out[0])), taps = static_cast<size_t>(a.kernel);
  const float* w = weight(op.weights[0]);
  const float* bias = weight(op.weights[1]);
  std::vector<float> u(rows() * n);
  for (size_t r = 0; r < rows(); ++r) {
    const float* p = at(op.in[0], r);
    for (size_t c = 0; c < n; ++c) u[r * n + c] = p[c] * p[2 * n + c];
    if (!a.centred) append(state(r).frames[static_cast<size_t>(op.state)].pending, &u[r * n], n);
  }
  // The frame that stands `back` rows before row r on its path; null before the start.
  const auto ancestor = [&](size_t r, size_t back) -> const float* {
    int32_t row = static_cast<int32_t>(r);
    for (; back > 0 && row != kState; --back) row = call_.rows[static_cast<size_t>(row)].parent;
    if (row != kState) return &u[static_cast<size_t>(row) * n];
    const std::vector<float>& held = state(r).frames[static_cast<size_t>(op.state)].held;
    return &held[(taps - 1 - (back + 1)) * n];
  };
  // Encoders: the row `offset` places behind r in its sequence; null outside it.
  const auto neighbour = [&](size_t r, ptrdiff_t offset) -> const float* {
    const auto entries = state(r).rows.entries();
    const ptrdiff_t e = entry_[r] + offset;
    if (e < 0 || e >= static_cast<ptrdiff_t>(entries.size())) return nullptr;
    return &u[static_cast<size_t>(entries[static_cast<size_t>(e)].call_row) * n];
  };
  for (size_t r = 0; r < rows(); ++r) {
    std::vector<const float*> frame(taps);
    for (size_t t = 0; t < taps; ++t)
      frame[t] = a.centred ? neighbour(r, static_cast<ptrdiff_t>(t) - static_cast<ptrdiff_t>(taps / 2)) : ancestor(r, taps - 1 - t);
    const float* gate = at(op.in[0], r) + n;
    float* y = at(op.out[0], r);
    for (size_t c = 0; c < n; ++c) {
      double v = bias != nullptr ? static_cast<double>(bias[c]) : 0.0;
      for (size_t t = 0; t < taps; ++t)
        if (frame[t] != nullptr) v += static_cast<double>(w[c * taps + t]) * static_cast<double>(frame[t][c]);
      y[c] = gate[c] * static_cast<float>(v);
    }
  }
}

void Executor::norm_and_rotate(float* x, int32_t heads, const QkNormRopeAttr& a, WeightId norm, int32_t position, float scale) const {
  const size_t hd = static_cast<size_t>(a.head_dim), half = hd / 2;
  const RopeSpec& spec = program_.ropes[static_cast<size_t>(a.rope)];
  std::vector<float> angles(hd);  // cosines, then sines
  ropes_[static_cast<size_t>(a.rope)].fill_row(position, angles.data());
  const float *cos = angles.data(), *sin = cos + half;
  for (int32_t h = 0; h < heads; ++h, x += hd) {
    if (norm != kNone) rms(x, weight(norm), x, hd, a.eps);
    for (size_t i = 0; i < half; ++i) {
      float& x1 = spec.interleaved ? x[2 * i] : x[i];
      float& x2 = spec.interleaved ? x[2 * i + 1] : x[i + half];
      const float r1 = x1 * cos[i] - x2 * sin[i], r2 = x2 * cos[i] + x1 * sin[i];
      x1 = r1 * scale;
      x2 = r2 * scale;
    }
  }
}

void Executor::qk_norm_rope(const Op& op) {
  const QkNormRopeAttr& a = std::get<QkNormRopeAttr>(op.attr);
  for (size_t r = 0; r < rows(); ++r) {
    const int32_t position = call_.rows[r].position;
    if (op.in[0] != kNone) {
      std::copy_n(at(op.in[0], r), width(op.in[0]), at(op.out[0], r));
      norm_and_rotate(at(op.out[0], r), a.n_heads, a, op.weights[0], position, a.q_scale);
    }
    std::copy_n(at(op.in[1], r), width(op.in[1]), at(op.out[1], r));
    norm_and_rotate(at(op.out[1], r), a.n_kv_heads, a, op.weights[1], position, 1.0f);
  }
}

std::vector<int32_t> Executor::visible_rows(const AttentionAttr& a, size_t row) const {
  std::vector<int32_t> out;
  if (a.mask == MaskKind::group) {
    for (size_t r = 0; r < rows(); ++r)
      if (call_.rows[r].sequence == call_.rows[row].sequence) out.push_back(static_cast<int32_t>(r));
    return out;
  }
  for (int32_t r = static_cast<int32_t>(row); r != kState; r = call_.rows[static_cast<size_t>(r)].parent) out.push_back(r);
  std::reverse(out.begin(), out.end());
  return out;
}

void Executor::attention(const Op& op) {
  const AttentionAttr& a = std::get<AttentionAttr>(op.attr);
  const size_t n = static_cast<size_t>(width(op.in[1]));
  if (a.keep)
    for (size_t r = 0; r < rows(); ++r) {
      KvSlot& slot = state(r).kv[static_cast<size_t>(op.state)];
      append(slot.pending_k, at(op.in[1], r), n);
      append(slot.pending_v, at(op.in[2], r), n);
    }
  if (op.in[0] == kNone) return;
  split(rows(), threads_, [&](size_t first, size_t last) {
    for (size_t r = first; r < last; ++r) attend(op, r, visible_rows(a, r));
  });
}

void Executor::attend(const Op& op, size_t row, const std::vector<int32_t>& visible) const {
  const AttentionAttr& a = std::get<AttentionAttr>(op.attr);
  const size_t hd = static_cast<size_t>(a.head_dim), n = static_cast<size_t>(width(op.in[1]));
  static const KvSlot kEmpty;
  const KvSlot& slot = op.state == kNone ? kEmpty : state(row).kv[static_cast<size_t>(op.state)];
  const size_t held = slot.k.size() / n, keys = held + visible.size();
  std::vector<double> p(keys), o(hd);
  for (size_t h = 0; h < static_cast<size_t>(a.n_heads); ++h) {
    const size_t at_kv = h / static_cast<size_t>(a.n_heads / a.n_kv_heads) * hd;
    const auto key = [&](size_t i) { return (i < held ? &slot.k[i * n] : at(op.in[1], static_cast<size_t>(visible[i - held]))) + at_kv; };
    const auto value = [&](size_t i) { return (i < held ? &slot.v[i * n] : at(op.in[2], static_cast<size_t>(visible[i - held]))) + at_kv; };
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t i = 0; i < keys; ++i) {
      p[i] = static_cast<double>(dot(at(op.in[0], row) + h * hd, key(i), hd));
      top = std::max(top, p[i]);
    }
    std::fill(o.begin(), o.end(), 0.0);
    for (size_t i = 0; i < keys; ++i) {
      const double e = std::exp(p[i] - top);
      sum += e;
      for (size_t d = 0; d < hd; ++d) o[d] += e * static_cast<double>(value(i)[d]);
    }
    for (size_t d = 0; d < hd; ++d) at(op.out[0], row)[h * hd + d] = static_cast<float>(o[d] / sum);
  }
}

void Executor::swiglu(const Op& op) {
  for (size_t i = 0; i < values_[static_cast<size_t>(op.in[0])].size(); ++i) {
    const double g = static_cast<double>(at(op.in[0], 0)[i]);
    at(op.out[0], 0)[i] = static_cast<float>(g / (1.0 + std::exp(-g))) * at(op.in[1], 0)[i];
  }
}

void Executor::add(const Op& op) {
  for (size_t i = 0; i < values_[static_cast<size_t>(op.in[0])].size(); ++i) at(op.out[0], 0)[i] = at(op.in[0], 0)[i] + at(op.in[1], 0)[i];
}

Status Executor::head(const Op& op) {
  constexpr uint32_t kAsks = kWantArgmax | kWantLogits | kWantTopK | kWantLse;
  const size_t vocabulary = static_cast<size_t>(program_.vocabulary), k = static_cast<size_t>(width(op.in[0]));
  const float* table = weight(op.weights[0]);
  std::vector<float> logits(vocabulary);
  for (size_t r = 0; r < rows(); ++r) {
    if ((call_.rows[r].wants & kAsks) == 0) continue;
    split(vocabulary, threads_, [&](size_t first, size_t last) {
      for (size_t i = first; i < last; ++i) logits[i] = dot(table + i * k, at(op.in[0], r), k);
    });
    ESPALIER_TRY(emit_logits(r, logits));
  }
  return {};
}

Status Executor::emit_logits(size_t row, const std::vector<float>& logits) {
  Outputs& out = *call_.out;
  const uint32_t wants = call_.rows[row].wants;
  for (float l : logits)
    if (!std::isfinite(l))
      return {Code::internal, "position " + std::to_string(call_.rows[row].position) + ": a logit is not finite; the weights or the state are damaged"};
  const auto best = std::max_element(logits.begin(), logits.end());  // the first of equals
  if (wants & kWantArgmax) out.argmax.push_back(static_cast<int32_t>(best - logits.begin()));
  if (wants & kWantLogits) out.logits.insert(out.logits.end(), logits.begin(), logits.end());
  if (wants & kWantLse) {
    double sum = 0;
    for (float l : logits) sum += std::exp(static_cast<double>(l) - static_cast<double>(*best));
    out.lse.push_back(static_cast<float>(static_cast<double>(*best) + std::log(sum)));
  }
  if (wants & kWantTopK) {
    std::vector<int32_t> ids(logits.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    const size_t k = std::min<size_t>(call_.top_k, ids.size());
    std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(k), ids.end(), [&](int32_t a, int32_t b) {
      const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
      return la != lb ? la > lb : a < b;
    });
    for (size_t i = 0; i < k; ++i) out.top.push_back({ids[i], logits[static_cast<size_t>(ids[i])]});
  }
  return {};
}

void Executor::copy_taps(const Op& op) {
  for (const Port& port : function_.outputs)
    for (NamedOutput& tap : call_.out->taps) {
      if (tap.name != port.name || std::find(op.out.begin(), op.out.end(), port.value) == op.out.end()) continue;
      for (size_t r = 0; r < rows(); ++r)
        if (call_.rows[r].wants & kWantTaps) append(tap.data, at(port.value, r), static_cast<size_t>(width(port.value)));
    }
}

void Executor::copy_edges() {
  if (call_.function.segment == kNone) return;
  for (const Port& port : function_.outputs)
    if (port.segment == call_.function.segment && port.name.starts_with("edge."))
      call_.out->edges.push_back({port.name, values_[static_cast<size_t>(port.value)]});
}

}  // namespace espalier::reference
