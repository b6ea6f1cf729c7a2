#include "decode/draft_tree.h"

#include <algorithm>

namespace espalier {

bool is_well_formed(const DraftTree& tree) {
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const DraftNode& n = tree.nodes[i];
    if (n.token < 0 || n.parent < kRoot || n.parent >= static_cast<int32_t>(i)) return false;
    if (n.depth != (n.parent == kRoot ? 1 : tree.nodes[static_cast<size_t>(n.parent)].depth + 1)) return false;
    const auto earlier = tree.nodes.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(tree.nodes.begin(), earlier, [&](const DraftNode& m) { return m.parent == n.parent && m.token == n.token; })) return false;
  }
  return true;
}

Acceptance accept(const DraftTree& tree, const std::function<int32_t(int32_t node)>& choose) {
  Acceptance kept;
  int32_t at = kRoot;
  for (;;) {
    const int32_t token = choose(at);
    if (token < 0) return kept;
    kept.tokens.push_back(token);
    const auto child = std::find_if(tree.nodes.begin(), tree.nodes.end(), [&](const DraftNode& n) { return n.parent == at && n.token == token; });
    if (child == tree.nodes.end()) return kept;
    at = static_cast<int32_t>(child - tree.nodes.begin());
    kept.path.push_back(at);
  }
}

}  // namespace espalier
