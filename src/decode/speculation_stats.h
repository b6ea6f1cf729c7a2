// What drafting did, as plain data that an engine fills and front ends print.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/calibration.h"
#include "decode/draft_tree.h"

namespace espalier {

struct SpeculationStats {
  // Nodes whose parent the target's text went through: offered, and agreed with.
  struct Tally {
    int64_t offered = 0, accepted = 0;
  };
  // A depth was offered where the kept path had at least one child there, and is accepted once.
  struct Source {
    std::string name;
    int64_t drafted = 0;  // nodes verified, reached or not
    Tally reached;
    Reliability reliability;  // of the nodes' probabilities, given that their parent was reached
  };
  struct Milliseconds {
    double draft = 0, verify = 0, commit = 0, host = 0;
  };

  int64_t cycles = 0;    // of one sequence each: a call with three sequences counts three
  int64_t rows = 0;      // roots and drafted
  int64_t tokens = 0;    // gained
  int64_t accepted = 0;  // drafted tokens that were kept
  std::vector<Tally> by_depth;  // [0]: depth 1
  std::vector<Source> by_source;
  Milliseconds ms;

  double tokens_per_cycle() const { return cycles == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(cycles); }
  double rows_per_cycle() const { return cycles == 0 ? 0 : static_cast<double>(rows) / static_cast<double>(cycles); }
  // Share of all cycles whose kept path reaches depth 1, 2 ...
  std::vector<double> survival() const;

  // One sequence of one call. `names`: of its sources, in the order of DraftNode::sources' bits.
  void add(const DraftTree& tree, const Acceptance& kept, std::span<const std::string_view> names);
  // Sums of another's, source by source.
  void merge(const SpeculationStats& other);
};

}  // namespace espalier
