// Byte strings in a prefix tree: the added tokens of a tokenizer, the stop strings of a request.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace espalier {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0, kNone = 0xffffffffu;

  ByteTrie() : nodes_(1) {}

  // Requires: not empty, value != kNone. A string that is there already keeps its value. Returns its last node.
  uint32_t insert(std::string_view text, uint32_t value) {
    uint32_t node = kRoot;
    for (const char c : text) {
      uint32_t next = child(node, c);
      if (next == kNone) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({kNone, nodes_[node].child, kNone, node, static_cast<unsigned char>(c)});
        nodes_[node].child = next;
        if (node == kRoot) first_[static_cast<unsigned char>(c)] = next;
      }
      node = next;
    }
    if (nodes_[node].value == kNone) nodes_[node].value = value;
    return node;
  }
  // The node below, or kNone.
  uint32_t child(uint32_t node, char c) const {
    if (node == kRoot) return first_[static_cast<unsigned char>(c)];
    uint32_t next = nodes_[node].child;
    while (next != kNone && nodes_[next].byte != static_cast<unsigned char>(c)) next = nodes_[next].sibling;
    return next;
  }
  uint32_t value(uint32_t node) const { return nodes_[node].value; }
  uint32_t parent(uint32_t node) const { return nodes_[node].parent; }
  char byte(uint32_t node) const { return static_cast<char>(nodes_[node].byte); }
  size_t size() const { return nodes_.size(); }
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    uint32_t child = kNone, sibling = kNone, value = kNone, parent = kNone;
    unsigned char byte = 0;
  };
  struct First {
    First() {
      for (uint32_t& f : at) f = kNone;
    }
    uint32_t& operator[](unsigned char c) { return at[c]; }
    uint32_t operator[](unsigned char c) const { return at[c]; }
    uint32_t at[256];
  };
  std::vector<Node> nodes_;
  First first_;
};

}  // namespace espalier
