#include "decode/markov_head.h"

#include <algorithm>

#include "base/check.h"
#include "base/fp_mode.h"
#include "kernels/math/canonical.h"
#include "kernels/table_dot/table_dot.h"

namespace espalier {
namespace {

TableType type_of(const FloatTable& table) {
  switch (table.type) {
    case FloatTable::Type::f32: return TableType::f32;
    case FloatTable::Type::f16: return TableType::f16;
    case FloatTable::Type::bf16: return TableType::bf16;
  }
  return TableType::f32;
}

size_t row_bytes(const FloatTable& table) { return static_cast<size_t>(table.cols) * (table.type == FloatTable::Type::f32 ? 4 : 2); }

TableDotFn table_dot() {
  static const TableDotFn fn = [] {
    const Result<Isa> isa = chosen_isa();
    return pick(table_dot_variants(), isa.ok() ? *isa : Isa::portable);
  }();
  return fn;
}

// Products of fp32 rows with x.
void products(const float* rows, uint32_t n_rows, std::span<const float> x, float* dst) {
  table_dot()({reinterpret_cast<const std::byte*>(rows), TableType::f32, nullptr, x.data(), dst, n_rows, static_cast<uint32_t>(x.size())});
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
  products(w.data(), static_cast<uint32_t>(y.size()), x, y.data());
  for (size_t r = 0; r < y.size(); ++r) y[r] += b[r];
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
  for (const int32_t id : ids) ESP_CHECK(id >= 0 && id < head_.vocabulary);
  table_dot()({head_.w2.data, type_of(head_.w2), ids.data(), lead.direction.data(), out.data(), static_cast<uint32_t>(ids.size()), static_cast<uint32_t>(n)});
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
  table_dot()({head_.w2.data, type_of(head_.w2), nullptr, lead.direction.data(), out.data(), static_cast<uint32_t>(out.size()), static_cast<uint32_t>(n)});
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
  float sum = 0;
  products(head_.confidence_weight.data(), 1, in, &sum);
  return canonical_sigmoid(sum + head_.confidence_bias);
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
  constexpr int32_t kBlock = 64;  // rows that stay in a near cache for all leads
  std::vector<BestEntries> best(leads.size(), BestEntries(kTop));
  const FpMode mode;
  float biases[kBlock];
  for (int32_t first = 0; first < head_.vocabulary; first += kBlock) {
    const int32_t n = std::min(kBlock, head_.vocabulary - first);
    const std::byte* rows = head_.w2.data + static_cast<size_t>(first) * row_bytes(head_.w2);
    for (size_t i = 0; i < leads.size(); ++i) {
      table_dot()({rows, type_of(head_.w2), nullptr, leads[i].direction.data(), biases, static_cast<uint32_t>(n), static_cast<uint32_t>(head_.rank)});
      for (int32_t v = 0; v < n; ++v) best[i].add(first + v, biases[v]);
    }
  }
  std::vector<Top> out;
  for (BestEntries& b : best) out.push_back(b.take());
  return out;
}

}  // namespace espalier
