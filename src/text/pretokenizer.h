// The pre_tokenizer of a tokenizer.json: cuts text into the pieces that BPE merges within.
//
// Known: Split (Regex or String pattern, all five behaviours, invert), Digits, ByteLevel (last), Sequence. Others are
// refused by name. Immutable and thread-safe after parsing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "espalier/status.h"
#include "text/pretokenizer_regex.h"

namespace espalier {

// Split's delimiters: gone, a piece of their own, joined to a neighbour, or runs of equal kind joined.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  std::optional<SplitRegex> regex;  // Split; without one it is Digits
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
};

class PreTokenizer {
 public:
  // The JSON object; it must hold one ByteLevel, as its last step.
  static Result<PreTokenizer> parse(const Value& json);

  struct Pieces {
    std::string_view text;        // what the spans speak of: the input, or `owned`
    std::vector<TextSpan> spans;  // ascending, none empty
    std::string owned;
  };
  // Overwrites `pieces`, which borrows `text`. Requires: valid UTF-8. Fails as SplitRegex::find_all.
  Status split(std::string_view text, RegexBudget& budget, Pieces& pieces) const;

 private:
  Status add(const Value& json, int depth);
  Status add_split(const Value& json);
  Status add_digits(const Value& json);
  Status add_byte_level(const Value& json);

  std::vector<SplitStep> steps_;
  bool byte_level_ = false, add_prefix_space_ = false;
  std::optional<SplitStep> byte_level_split_;
};

}  // namespace espalier
