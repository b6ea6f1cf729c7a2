#include "measure/oracle_source.h"

#include <algorithm>

#include "base/json.h"

namespace espalier {
namespace {

constexpr size_t kDepthsMax = 63, kRanksMax = 32;

// In [0, 1), the same for the same place and depth.
double draw(size_t place, size_t depth) {
  uint64_t z = (place * 64 + depth + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace

Result<OracleTrace> read_trace(const std::string& text, const std::string& where) {
  auto v = parse_json(text);
  if (!v.ok()) return std::move(v).status().with_context(where);
  const auto wrong = [&] { return invalid(where + ": expected {\"hits\": [[0.7, 0.1], ...]}: 1 to 63 depths of 1 to 32 shares that sum to at most 1", "draft"); };
  OracleTrace out;
  if (const Value* from = v->find("from"); from != nullptr && from->is_string()) out.from = from->as_string();
  const Value* hits = v->find("hits");
  if (hits == nullptr || !hits->is_array() || hits->as_array().empty() || hits->as_array().size() > kDepthsMax) return wrong();
  for (const Value& depth : hits->as_array()) {
    if (!depth.is_array() || depth.as_array().empty() || depth.as_array().size() > kRanksMax) return wrong();
    std::vector<double>& shares = out.hits.emplace_back();
    double sum = 0;
    for (const Value& share : depth.as_array()) {
      if (!share.is_number() || !(share.as_double() >= 0 && share.as_double() <= 1)) return wrong();
      sum += shares.emplace_back(share.as_double());
    }
    if (sum > 1 + 1e-6) return wrong();
    std::sort(shares.rbegin(), shares.rend());
  }
  return out;
}

Value trace_json(const OracleTrace& trace) {
  Value v = Value::object(), hits = Value::array();
  v.set("from", trace.from);
  for (const std::vector<double>& depth : trace.hits) {
    Value shares = Value::array();
    for (const double s : depth) shares.push(s);
    hits.push(std::move(shares));
  }
  v.set("hits", std::move(hits));
  return v;
}

OracleSource::OracleSource(const OracleTrace& trace, const std::vector<int32_t>& truth, int32_t vocabulary, DraftSource* beside)
    : trace_(trace), truth_(truth), vocabulary_(vocabulary), beside_(beside) {}

void OracleSource::begin(std::span<const int32_t> text) {
  length_ = text.size();
  if (beside_ != nullptr) beside_->begin(text);
}

void OracleSource::propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) {
  if (beside_ != nullptr) {
    discarded_.clear();
    beside_->propose(place, limit, discarded_);
  }
  const size_t depth = place.path.size(), next = length_ + depth;
  if (depth >= trace_.hits.size()) return;
  const std::vector<double>& shares = trace_.hits[depth];
  const bool on_path = next < truth_.size() && std::equal(place.path.begin(), place.path.end(), truth_.begin() + static_cast<std::ptrdiff_t>(length_));
  const int32_t right = on_path ? truth_[next] : -1;
  double left = draw(length_, depth);
  size_t rank = 0;
  while (rank < shares.size() && left >= shares[rank]) left -= shares[rank++];
  // Wrong tokens: any that differ from the right one and from each other.
  int32_t wrong = static_cast<int32_t>(draw(length_, depth + 31) * vocabulary_);
  for (size_t i = 0; i < std::min(limit, shares.size()); ++i) {
    if (right >= 0 && i == rank) {
      out.push_back({right, static_cast<float>(shares[i])});
      continue;
    }
    wrong = (wrong + 1) % vocabulary_;
    if (wrong == right) wrong = (wrong + 1) % vocabulary_;
    out.push_back({wrong, static_cast<float>(shares[i])});
  }
}

void OracleSource::learn(const DraftPlace&, int32_t, float, bool) {}

OracleTrace TracingSource::Counts::trace(std::string from) const {
  OracleTrace out{std::move(from), {}};
  for (size_t d = 0; d < std::min(places.size(), kDepthsMax); ++d) {
    if (places[d] == 0) break;
    std::vector<double> shares;
    for (size_t r = 0; r < std::min(hits[d].size(), kRanksMax); ++r) shares.push_back(static_cast<double>(hits[d][r]) / static_cast<double>(places[d]));
    std::sort(shares.rbegin(), shares.rend());
    while (!shares.empty() && shares.back() == 0) shares.pop_back();
    if (shares.empty()) break;
    out.hits.push_back(std::move(shares));
  }
  return out;
}

void TracingSource::begin(std::span<const int32_t> text) {
  offers_.clear();
  inner_.begin(text);
}

void TracingSource::propose(const DraftPlace& place, size_t limit, std::vector<Proposal>& out) {
  const size_t first = out.size(), at = static_cast<size_t>(place.node + 1);
  inner_.propose(place, limit, out);
  offers_.resize(std::max(offers_.size(), at + 1));
  for (size_t i = first; i < out.size(); ++i) offers_[at].push_back(out[i].token);
}

void TracingSource::learn(const DraftPlace& place, int32_t token, float probability, bool accepted) {
  inner_.learn(place, token, probability, accepted);
  const size_t depth = place.path.size(), at = static_cast<size_t>(place.node + 1);
  if (at >= offers_.size()) return;
  const auto found = std::find(offers_[at].begin(), offers_[at].end(), token);
  if (found == offers_[at].end()) return;
  const size_t rank = static_cast<size_t>(found - offers_[at].begin());
  if (counts_.places.size() <= depth) {
    counts_.places.resize(depth + 1);
    counts_.hits.resize(depth + 1);
  }
  if (rank == 0) ++counts_.places[depth];
  if (counts_.hits[depth].size() <= rank) counts_.hits[depth].resize(rank + 1);
  counts_.hits[depth][rank] += accepted ? 1 : 0;
}

}  // namespace espalier
