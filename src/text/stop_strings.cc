#include "text/stop_strings.h"

#include <algorithm>

#include "base/check.h"
#include "text/tokenizer_trie.h"
#include "text/unicode.h"

namespace espalier {
namespace {

constexpr size_t kMaxStopBytes = size_t{4} << 20;

}  // namespace

// Aho-Corasick: each node is the longest begin of a stop string that the text ends in.
struct StopStrings::Automaton {
  ByteTrie trie;
  struct Node {
    uint32_t fallback = ByteTrie::kRoot;  // the longest proper suffix that is a node
    uint32_t depth = 0;
    uint32_t longest = ByteTrie::kNone;  // the longest stop string that ends here
  };
  std::vector<Node> nodes;
  std::vector<size_t> lengths;  // by stop string

  uint32_t advance(uint32_t node, char c) const {
    for (;;) {
      const uint32_t next = trie.child(node, c);
      if (next != ByteTrie::kNone) return next;
      if (node == ByteTrie::kRoot) return ByteTrie::kRoot;
      node = nodes[node].fallback;
    }
  }
  void link();
};

// Nodes in order of depth, so that all shorter ones have their links.
void StopStrings::Automaton::link() {
  const auto n = static_cast<uint32_t>(trie.size());
  nodes.resize(n);
  uint32_t deepest = 0;
  for (uint32_t i = 1; i < n; ++i) {  // parents are made before children
    nodes[i].depth = nodes[trie.parent(i)].depth + 1;
    deepest = std::max(deepest, nodes[i].depth);
  }
  std::vector<uint32_t> start(deepest + 2), order(n);
  for (uint32_t i = 0; i < n; ++i) ++start[nodes[i].depth + 1];
  for (uint32_t d = 0; d <= deepest; ++d) start[d + 1] += start[d];
  for (uint32_t i = 0; i < n; ++i) order[start[nodes[i].depth]++] = i;
  for (const uint32_t i : order) {
    if (nodes[i].depth > 1) nodes[i].fallback = advance(nodes[trie.parent(i)].fallback, trie.byte(i));
    nodes[i].longest = trie.value(i) != ByteTrie::kNone ? trie.value(i) : nodes[nodes[i].fallback].longest;
  }
}

Result<StopStrings> StopStrings::create(const std::vector<std::string>& stops) {
  auto automaton = std::make_shared<Automaton>();
  size_t total = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) return invalid("stop string " + std::to_string(i + 1) + " of " + std::to_string(stops.size()) + " is empty; leave it out", "stop");
    if (find_invalid_utf8(stops[i]) != std::string::npos)
      return invalid("stop string " + std::to_string(i + 1) + " of " + std::to_string(stops.size()) + " is not valid UTF-8, so no answer can hold it", "stop");
    total += stops[i].size();
    if (total > kMaxStopBytes) return invalid("the stop strings have more than " + std::to_string(kMaxStopBytes) + " bytes together", "stop");
    automaton->trie.insert(stops[i], static_cast<uint32_t>(i));
    automaton->lengths.push_back(stops[i].size());
  }
  automaton->link();
  return StopStrings(std::move(automaton));
}

bool StopStrings::empty() const { return automaton_->lengths.empty(); }

StopMatcher::Step StopMatcher::push(std::string_view piece) {
  const StopStrings::Automaton& automaton = *stops_.automaton_;
  Step step;
  held_ += piece;
  size_t best = held_.size() + 1;
  for (size_t i = held_.size() - piece.size(); i < held_.size(); ++i) {
    node_ = automaton.advance(node_, held_[i]);
    const uint32_t stop = automaton.nodes[node_].longest;
    if (stop == ByteTrie::kNone) continue;
    const size_t length = automaton.lengths[stop];
    ESP_CHECK(length <= i + 1);
    const size_t begin = i + 1 - length;
    if (begin > best || (begin == best && length <= automaton.lengths[*step.stop])) continue;
    best = begin;
    step.stop = stop;
  }
  const size_t emit = step.stop ? best : held_.size() - automaton.nodes[node_].depth;
  step.text = held_.substr(0, emit);
  held_.erase(0, emit);
  if (step.stop) held_.clear();
  return step;
}

std::string StopMatcher::flush() {
  node_ = 0;
  std::string rest;
  rest.swap(held_);
  return rest;
}

}  // namespace espalier
