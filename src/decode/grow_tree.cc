#include "decode/grow_tree.h"

#include <algorithm>

#include "base/check.h"

namespace espalier {
namespace {

struct Offer {
  int32_t source, token;
  float probability;
};

struct Child {
  int32_t token;
  float probability;
  uint32_t sources;
};

// A node, or the root, whose sources have been asked.
struct Place {
  std::vector<Child> children;  // best first
  std::vector<Offer> offers;    // what each source said by itself
};

// The best child of a place that is not taken yet.
struct Candidate {
  float reach;
  int32_t sequence, parent;
  size_t child;
};

// For a heap whose front is the first in the order.
bool later(const Candidate& a, const Candidate& b) {
  if (a.reach != b.reach) return a.reach < b.reach;
  if (a.sequence != b.sequence) return a.sequence > b.sequence;
  return a.parent > b.parent;
}

struct Grown {
  DraftSequence input;
  int32_t depth_max;
  DraftTree tree;
  std::vector<Place> places;  // by node + 1; empty where nobody asked
};

void add_offer(std::vector<Child>& children, const Offer& offer) {
  const uint32_t bit = 1u << offer.source;
  for (Child& c : children) {
    if (c.token != offer.token) continue;
    c.probability = 1 - (1 - c.probability) * (1 - offer.probability);
    c.sources |= bit;
    return;
  }
  children.push_back({offer.token, offer.probability, bit});
}

}  // namespace

struct TreeGrower::Impl {
  std::vector<Grown> sequences;
  int32_t nodes_max, children_max;
  bool closed = false;
  std::vector<Candidate> heap;
  std::vector<std::pair<int32_t, int32_t>> unasked;  // (sequence, node) taken, not expanded yet
  std::vector<float> reach;
  std::vector<int32_t> order;  // the sequence of each node taken
  std::vector<int32_t> path;
  std::vector<Proposal> proposals;

  // Tokens below the root down to the node; borrowed until the next call.
  DraftPlace place_of(const Grown& s, int32_t node) {
    path.clear();
    for (int32_t i = node; i != kRoot; i = s.tree.nodes[static_cast<size_t>(i)].parent) path.push_back(s.tree.nodes[static_cast<size_t>(i)].token);
    std::reverse(path.begin(), path.end());
    if (node == kRoot) return {node, kRoot - 1, path};
    const DraftNode& at = s.tree.nodes[static_cast<size_t>(node)];
    return {node, at.parent, path, at.reach};
  }

  void ask(Grown& s, int32_t source, const DraftPlace& place, std::vector<Offer>& offers) {
    proposals.clear();
    s.input.sources[static_cast<size_t>(source)]->propose(place, static_cast<size_t>(children_max), proposals);
    const size_t first = offers.size();
    for (const Proposal& p : proposals) {
      if (p.token < 0 || !(p.probability > 0) || offers.size() - first == static_cast<size_t>(children_max)) continue;
      const auto same = [&](const Offer& o) { return o.token == p.token; };
      if (std::any_of(offers.begin() + static_cast<std::ptrdiff_t>(first), offers.end(), same)) continue;
      offers.push_back({source, p.token, std::min(p.probability, 1.0f)});
    }
  }

  void expand(int32_t sequence, int32_t node) {
    Grown& s = sequences[static_cast<size_t>(sequence)];
    const int32_t depth = node == kRoot ? 0 : s.tree.nodes[static_cast<size_t>(node)].depth;
    if (depth >= s.depth_max) return;
    Place place;
    const DraftPlace at = place_of(s, node);
    for (size_t i = 0; i < s.input.sources.size(); ++i) ask(s, static_cast<int32_t>(i), at, place.offers);
    for (const Offer& o : place.offers) add_offer(place.children, o);
    std::sort(place.children.begin(), place.children.end(), [](const Child& a, const Child& b) {
      return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
    });
    if (place.children.size() > static_cast<size_t>(children_max)) place.children.resize(static_cast<size_t>(children_max));
    s.places.resize(std::max(s.places.size(), static_cast<size_t>(node) + 2));
    s.places[static_cast<size_t>(node + 1)] = std::move(place);
    push(sequence, node, 0);
  }

  void push(int32_t sequence, int32_t parent, size_t child) {
    const Grown& s = sequences[static_cast<size_t>(sequence)];
    const std::vector<Child>& children = s.places[static_cast<size_t>(parent + 1)].children;
    if (child >= children.size()) return;
    const float above = parent == kRoot ? 1.0f : s.tree.nodes[static_cast<size_t>(parent)].reach;
    const float product = above * children[child].probability;
    if (!(product > 0)) return;
    heap.push_back({product, sequence, parent, child});
    std::push_heap(heap.begin(), heap.end(), later);
  }

  // The front of the heap, after everything that was taken has been expanded; null when there is none, or no room.
  const Candidate* best() {
    if (closed || reach.size() >= static_cast<size_t>(nodes_max)) return nullptr;
    for (size_t i = 0; i < unasked.size(); ++i) expand(unasked[i].first, unasked[i].second);
    unasked.clear();
    return heap.empty() ? nullptr : &heap.front();
  }

  void learn(Grown& s, int32_t node, int32_t chosen) {
    const size_t index = static_cast<size_t>(node + 1);
    if (index >= s.places.size() || s.places[index].offers.empty()) return;
    const DraftPlace at = place_of(s, node);
    for (const Offer& o : s.places[index].offers)
      s.input.sources[static_cast<size_t>(o.source)]->learn(at, o.token, o.probability, o.token == chosen);
  }
};

TreeGrower::TreeGrower(std::vector<DraftSequence> sequences, GrowLimits limits) : impl_(std::make_unique<Impl>()) {
  Impl& g = *impl_;
  g.nodes_max = static_cast<int32_t>(std::clamp<int64_t>(limits.nodes, 0, kDraftNodesMax));
  g.children_max = static_cast<int32_t>(std::clamp<int64_t>(limits.children, 1, kDraftChildrenMax));
  for (DraftSequence& s : sequences) {
    ESP_CHECK(s.sources.size() <= 32);
    const int64_t depth = std::clamp<int64_t>(std::min(limits.depth, s.depth_max), 0, kDraftDepthMax);
    g.unasked.emplace_back(static_cast<int32_t>(g.sequences.size()), kRoot);
    g.sequences.push_back({std::move(s), static_cast<int32_t>(depth), {}, {}});
  }
}
TreeGrower::~TreeGrower() = default;
TreeGrower::TreeGrower(TreeGrower&&) noexcept = default;
TreeGrower& TreeGrower::operator=(TreeGrower&&) noexcept = default;

float TreeGrower::next() {
  const Candidate* best = impl_->best();
  return best == nullptr ? 0 : best->reach;
}

bool TreeGrower::take() {
  Impl& g = *impl_;
  if (g.best() == nullptr) return false;
  std::pop_heap(g.heap.begin(), g.heap.end(), later);
  const Candidate c = g.heap.back();
  g.heap.pop_back();
  Grown& s = g.sequences[static_cast<size_t>(c.sequence)];
  const Child& child = s.places[static_cast<size_t>(c.parent + 1)].children[c.child];
  const int32_t depth = c.parent == kRoot ? 1 : s.tree.nodes[static_cast<size_t>(c.parent)].depth + 1;
  g.unasked.emplace_back(c.sequence, static_cast<int32_t>(s.tree.nodes.size()));
  s.tree.nodes.push_back({child.token, c.parent, depth, c.reach, child.sources});
  g.reach.push_back(c.reach);
  g.order.push_back(c.sequence);
  g.push(c.sequence, c.parent, c.child + 1);
  return true;
}

size_t TreeGrower::grow(size_t nodes) {
  while (impl_->reach.size() < nodes && take()) {
  }
  return impl_->reach.size();
}

void TreeGrower::cut(size_t nodes) {
  Impl& g = *impl_;
  g.closed = true;
  while (g.reach.size() > nodes) {
    g.sequences[static_cast<size_t>(g.order.back())].tree.nodes.pop_back();
    g.order.pop_back();
    g.reach.pop_back();
  }
}

std::span<const float> TreeGrower::reach() const { return impl_->reach; }
size_t TreeGrower::sequences() const { return impl_->sequences.size(); }
const DraftTree& TreeGrower::tree(size_t sequence) const { return impl_->sequences.at(sequence).tree; }

void TreeGrower::learn(size_t sequence, const Acceptance& kept) {
  Grown& s = impl_->sequences.at(sequence);
  for (size_t i = 0; i < kept.tokens.size() && i <= kept.path.size(); ++i)
    impl_->learn(s, i == 0 ? kRoot : kept.path[i - 1], kept.tokens[i]);
}

}  // namespace espalier
