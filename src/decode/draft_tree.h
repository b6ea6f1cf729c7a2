// A tree of drafted tokens below the root, and what a target's choices keep of it.
//
// The root is the newest token of the text, not yet run; nodes hang below it. A call that verifies a tree has the row of the
// root first, then one row for each node in order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace espalier {

inline constexpr int32_t kRoot = -1;  // parent of the nodes at depth 1

struct DraftNode {
  int32_t token;
  int32_t parent;    // an earlier node, or kRoot
  int32_t depth;     // 1 below the root
  float reach;       // calibrated probability that the target's own text goes through this node: the product along the path
  uint32_t sources;  // bit i: source i of the sequence proposed it
};

// Parents before children; one node for each (parent, token).
struct DraftTree {
  std::vector<DraftNode> nodes;
};

// True when parents, depths and tokens are as DraftTree promises.
bool is_well_formed(const DraftTree& tree);

struct Acceptance {
  std::vector<int32_t> path;    // nodes that are kept, each the child of the one before
  std::vector<int32_t> tokens;  // what the text grows by: the tokens of the path and the target's own last choice
};

// Walks down from the root: the target's choice at a node, then the child that equals it, until no child does. `choose` is
// asked once for each node on the way, kRoot first, in the order of the text, so that it may carry a history. It returns the
// target's token behind that node, or a negative number to end the walk before it (a text that is complete).
Acceptance accept(const DraftTree& tree, const std::function<int32_t(int32_t node)>& choose);

}  // namespace espalier
