#include "decode/speculation_stats.h"

#include <algorithm>

namespace espalier {
namespace {

SpeculationStats::Source& source_named(std::vector<SpeculationStats::Source>& sources, std::string_view name) {
  for (SpeculationStats::Source& s : sources)
    if (s.name == name) return s;
  SpeculationStats::Source& added = sources.emplace_back();
  added.name = std::string(name);
  return added;
}

void add(SpeculationStats::Tally& to, const SpeculationStats::Tally& from) {
  to.offered += from.offered;
  to.accepted += from.accepted;
}

}  // namespace

std::vector<double> SpeculationStats::survival() const {
  std::vector<double> shares;
  for (const Tally& t : by_depth) shares.push_back(cycles == 0 ? 0 : static_cast<double>(t.accepted) / static_cast<double>(cycles));
  return shares;
}

void SpeculationStats::add(const DraftTree& tree, const Acceptance& kept, std::span<const std::string_view> names) {
  cycles += 1;
  rows += 1 + static_cast<int64_t>(tree.nodes.size());
  tokens += static_cast<int64_t>(kept.tokens.size());
  accepted += static_cast<int64_t>(kept.path.size());
  // The place at depth d of the kept path is known to the target where a token was chosen there.
  for (size_t d = 0; d < kept.tokens.size() && d <= kept.path.size(); ++d) {
    const int32_t place = d == 0 ? kRoot : kept.path[d - 1];
    bool offered = false;
    for (const DraftNode& n : tree.nodes) {
      if (n.parent != place) continue;
      offered = true;
      const bool right = n.token == kept.tokens[d];
      const float above = place == kRoot ? 1.0f : tree.nodes[static_cast<size_t>(place)].reach;
      for (size_t i = 0; i < names.size() && i < 32; ++i) {
        if ((n.sources >> i & 1u) == 0) continue;
        Source& s = source_named(by_source, names[i]);
        espalier::add(s.reached, {1, right ? 1 : 0});
        s.reliability.add(above > 0 ? std::min(n.reach / above, 1.0f) : 0.0f, right);
      }
    }
    if (!offered) continue;
    by_depth.resize(std::max(by_depth.size(), d + 1));
    espalier::add(by_depth[d], {1, kept.path.size() > d ? 1 : 0});
  }
  for (const DraftNode& n : tree.nodes)
    for (size_t i = 0; i < names.size() && i < 32; ++i)
      if ((n.sources >> i & 1u) != 0) ++source_named(by_source, names[i]).drafted;
}

void SpeculationStats::merge(const SpeculationStats& other) {
  cycles += other.cycles;
  rows += other.rows;
  tokens += other.tokens;
  accepted += other.accepted;
  by_depth.resize(std::max(by_depth.size(), other.by_depth.size()));
  for (size_t d = 0; d < other.by_depth.size(); ++d) espalier::add(by_depth[d], other.by_depth[d]);
  for (const Source& from : other.by_source) {
    Source& to = source_named(by_source, from.name);
    to.drafted += from.drafted;
    espalier::add(to.reached, from.reached);
    to.reliability.merge(from.reliability);
  }
  ms.draft += other.ms.draft;
  ms.verify += other.ms.verify;
  ms.commit += other.ms.commit;
  ms.host += other.ms.host;
}

}  // namespace espalier
