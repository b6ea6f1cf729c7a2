// Reads a split regex (Oniguruma, Ruby syntax) into a flat list of PCRE2 text and sets of code points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "espalier/status.h"
#include "text/unicode.h"

namespace espalier {

inline constexpr size_t kMaxPatternBytes = 16384;

struct PatternItem {
  int set = -1;      // index into SplitPattern::sets, or -1:
  std::string text;  // PCRE2 syntax that names no character
};

struct SplitPattern {
  std::vector<PatternItem> items;
  std::vector<CodeSet> sets;  // all different
};

Result<SplitPattern> parse_split_pattern(std::string_view pattern);
SplitPattern literal_pattern(std::string_view text);

}  // namespace espalier
