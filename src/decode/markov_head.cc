#include "decode/markov_head.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/fp_mode.h"
#include "kernels/math/canonical.h"

namespace espalier {
namespace {

using Type = FloatTable::Type;

// Written for the compiler's vector unit at any instruction set: 16 independent lanes, no branches, no fma.
template <Type kType>
float widen(const std::byte* p) {
  if constexpr (kType == Type::f32) {
    float f;
    std::memcpy(&f, p, sizeof f);
    return f;
  } else {
    uint16_t h;
    std::memcpy(&h, p, sizeof h);
    if constexpr (kType == Type::bf16) return std::bit_cast<float>(uint32_t{h} << 16);
    const uint32_t sign = uint32_t{h & 0x8000u} << 16, magnitude = uint32_t{h & 0x7fffu} << 13;
    const float finite = std::bit_cast<float>(magnitude) * 0x1p112f;  // exact, subnormals too
    const uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : std::bit_cast<uint32_t>(finite);
    return std::bit_cast<float>(sign | bits);
  }
}

template <Type kType>
constexpr size_t kBytes = kType == Type::f32 ? 4 : 2;

float combined(const float (&lane)[16]) {
  float s[16];
  std::copy_n(lane, 16, s);
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) s[i] += s[i + step];
  return s[0];
}

template <Type kType>
float dot(const std::byte* row, const float* x, size_t n) {
  float lane[16] = {};
  size_t c = 0;
  for (; c + 16 <= n; c += 16)
    for (size_t i = 0; i < 16; ++i) lane[i] += widen<kType>(row + (c + i) * kBytes<kType>) * x[c + i];
  for (size_t i = 0; c + i < n; ++i) lane[i] += widen<kType>(row + (c + i) * kBytes<kType>) * x[c + i];
  return combined(lane);
}

float dot(const float* a, const float* b, size_t n) { return dot<Type::f32>(reinterpret_cast<const std::byte*>(a), b, n); }

// Calls fn with the table's type as a constant.
template <typename Fn>
void with_type(Type type, Fn fn) {
  switch (type) {
    case Type::f32: fn.template operator()<Type::f32>(); break;
    case Type::f16: fn.template operator()<Type::f16>(); break;
    case Type::bf16: fn.template operator()<Type::bf16>(); break;
  }
}

bool better(const TopEntry& a, const TopEntry& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

// The best `limit` of a stream of entries: a heap whose front is the worst of them.
class BestEntries {
 public:
  explicit BestEntries(size_t limit) : limit_(limit) {}
  void add(int32_t id, float logit) {
    if (logit != logit) return;  // damaged weights: no order has a place for it
    if (heap_.size() == limit_ && !better({id, logit}, heap_.front())) return;
    if (heap_.size() == limit_) {
      std::pop_heap(heap_.begin(), heap_.end(), better);
      heap_.pop_back();
    }
    heap_.push_back({id, logit});
    std::push_heap(heap_.begin(), heap_.end(), better);
  }
  std::vector<TopEntry> take() {
    std::sort(heap_.begin(), heap_.end(), better);
    return std::move(heap_);
  }

 private:
  size_t limit_;
  std::vector<TopEntry> heap_;
};

// y = W x + b for a small matrix (rows, x.size()).
std::vector<float> affine(const std::vector<float>& w, const std::vector<float>& b, const std::vector<float>& x) {
  std::vector<float> y(b.size());
  for (size_t r = 0; r < y.size(); ++r) y[r] = dot(w.data() + r * x.size(), x.data(), x.size()) + b[r];
  return y;
}

void append(std::vector<float>& to, std::span<const float> from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

MarkovHead::MarkovHead(const DraftHead& head) : head_(head) {}

void MarkovHead::lead(int32_t token, std::span<const float> hidden, const Lead* parent, Lead& out) const {
  const size_t rank = static_cast<size_t>(head_.rank);
  out.direction.resize(rank);
  out.memory.clear();
  if (head_.kind == MarkovKind::none) return;
  ESP_CHECK(token >= 0 && token < head_.vocabulary && &out != parent);
  const FpMode mode;
  std::vector<float>& e = out.direction;
  read_row(head_.w1, token, e.data());
  if (head_.kind == MarkovKind::vanilla) return;
  ESP_CHECK(hidden.size() == static_cast<size_t>(head_.hidden));
  std::vector<float> in;
  if (head_.kind == MarkovKind::gated) {
    append(in, hidden);
    append(in, e);
    const std::vector<float> gate = affine(head_.gate_weight, head_.gate_bias, in);
    for (size_t i = 0; i < rank; ++i) e[i] *= canonical_sigmoid(gate[i]);
    return;
  }
  out.memory = parent == nullptr ? std::vector<float>(rank) : parent->memory;
  append(in, out.memory);
  append(in, e);
  append(in, hidden);
  const std::vector<float> parts = affine(head_.joint_weight, head_.joint_bias, in);
  for (size_t i = 0; i < rank; ++i) {
    const float keep = canonical_sigmoid(parts[i]);
    out.memory[i] = keep * out.memory[i] + (1.0f - keep) * canonical_tanh(parts[rank + i]);
    e[i] = canonical_tanh(parts[2 * rank + i]);
  }
}

void MarkovHead::bias(const Lead& lead, std::span<const int32_t> ids, std::span<float> out) const {
  ESP_CHECK(out.size() == ids.size());
  if (head_.kind == MarkovKind::none) {
    std::fill(out.begin(), out.end(), 0.0f);
    return;
  }
  const FpMode mode;
  const size_t n = static_cast<size_t>(head_.rank);
  ESP_CHECK(lead.direction.size() == n);
  with_type(head_.w2.type, [&]<Type kType>() {
    for (size_t i = 0; i < ids.size(); ++i) {
      ESP_CHECK(ids[i] >= 0 && ids[i] < head_.vocabulary);
      out[i] = dot<kType>(head_.w2.data + static_cast<size_t>(ids[i]) * n * kBytes<kType>, lead.direction.data(), n);
    }
  });
}

void MarkovHead::bias(const Lead& lead, std::span<float> out) const {
  ESP_CHECK(out.size() == static_cast<size_t>(head_.vocabulary));
  if (head_.kind == MarkovKind::none) {
    std::fill(out.begin(), out.end(), 0.0f);
    return;
  }
  const FpMode mode;
  const size_t n = static_cast<size_t>(head_.rank);
  ESP_CHECK(lead.direction.size() == n);
  with_type(head_.w2.type, [&]<Type kType>() {
    for (size_t v = 0; v < out.size(); ++v) out[v] = dot<kType>(head_.w2.data + v * n * kBytes<kType>, lead.direction.data(), n);
  });
}

float MarkovHead::confidence(int32_t token, std::span<const float> hidden) const {
  if (!head_.has_confidence()) return 1.0f;
  ESP_CHECK(hidden.size() == static_cast<size_t>(head_.hidden));
  const FpMode mode;
  std::vector<float> in(hidden.begin(), hidden.end());
  if (head_.confidence_with_markov) {
    ESP_CHECK(token >= 0 && token < head_.vocabulary);
    in.resize(hidden.size() + static_cast<size_t>(head_.rank));
    read_row(head_.w1, token, in.data() + hidden.size());
  }
  return canonical_sigmoid(dot(head_.confidence_weight.data(), in.data(), in.size()) + head_.confidence_bias);
}

std::span<const TopEntry> MarkovHead::top(int32_t token) {
  if (head_.kind == MarkovKind::none) return {};
  const auto found = top_.find(token);
  if (found != top_.end()) return found->second;
  prepare({&token, 1});
  return top_.at(token);
}

void MarkovHead::prepare(std::span<const int32_t> tokens) {
  if (head_.kind == MarkovKind::none) return;
  const std::vector<float> zeros(static_cast<size_t>(head_.hidden));
  std::vector<int32_t> missing;
  for (int32_t t : tokens)
    if (!top_.contains(t) && std::find(missing.begin(), missing.end(), t) == missing.end()) missing.push_back(t);
  if (missing.empty()) return;
  std::vector<Lead> leads(missing.size());
  for (size_t i = 0; i < missing.size(); ++i) lead(missing[i], zeros, nullptr, leads[i]);
  std::vector<Top> tops = find(leads);
  for (size_t i = 0; i < missing.size(); ++i) top_.emplace(missing[i], std::move(tops[i]));
}

std::vector<MarkovHead::Top> MarkovHead::find(std::span<const Lead> leads) const {
  const std::vector<std::vector<int32_t>> found = finder_ ? finder_(leads) : std::vector<std::vector<int32_t>>{};
  if (found.size() != leads.size()) return scan(leads);
  std::vector<Top> out;
  std::vector<float> biases;
  for (size_t i = 0; i < leads.size(); ++i) {
    if (found[i].empty()) {
      out.push_back(std::move(scan(leads.subspan(i, 1))[0]));
      continue;
    }
    biases.resize(found[i].size());
    bias(leads[i], found[i], biases);
    BestEntries best(kTop);
    for (size_t n = 0; n < biases.size(); ++n) best.add(found[i][n], biases[n]);
    out.push_back(best.take());
  }
  return out;
}

std::vector<MarkovHead::Top> MarkovHead::scan(std::span<const Lead> leads) const {
  std::vector<BestEntries> best(leads.size(), BestEntries(kTop));
  const FpMode mode;
  const size_t n = static_cast<size_t>(head_.rank);
  with_type(head_.w2.type, [&]<Type kType>() {
    std::vector<float> row(n);
    for (int32_t v = 0; v < head_.vocabulary; ++v) {
      const std::byte* at = head_.w2.data + static_cast<size_t>(v) * n * kBytes<kType>;
      if (leads.size() == 1) {  // nothing to share the widened row with
        best[0].add(v, dot<kType>(at, leads[0].direction.data(), n));
        continue;
      }
      for (size_t i = 0; i < n; ++i) row[i] = widen<kType>(at + i * kBytes<kType>);
      for (size_t i = 0; i < leads.size(); ++i) best[i].add(v, dot(row.data(), leads[i].direction.data(), n));
    }
  });
  std::vector<Top> out;
  for (BestEntries& b : best) out.push_back(b.take());
  return out;
}

}  // namespace espalier
