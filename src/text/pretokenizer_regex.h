// The split regex of a tokenizer file, run by PCRE2 over an alphabet of our own.
//
// The pattern is read in the reference's dialect (Oniguruma with Ruby syntax). Every literal, class and property becomes
// a set of code points from the table in unicode.h, the sets cut Unicode into at most 256 parts, and PCRE2 matches a byte
// pattern over the numbers of these parts. So no Unicode data of PCRE2 is used, a class costs one look-up, and the result
// is the same with every version of it. What the dialect has and this reader does not know is refused by its name.
//
// Immutable and thread-safe after compile().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/status.h"

namespace espalier {

struct TextSpan {
  size_t begin, end;  // bytes
  bool operator==(const TextSpan&) const = default;
};

// Processor time that one encoding may spend in regexes, so that a hostile pattern cannot hang its caller: a fixed part
// and a part for each byte, both far above what the known patterns need. For one thread.
class RegexBudget {
 public:
  explicit RegexBudget(size_t text_bytes);
  // Cheap: the processor clock is read only every few milliseconds of real time.
  bool spent();

 private:
  int64_t deadline_ns_;  // of this thread's processor clock
  int64_t next_look_ns_;  // of the monotonic clock
};

class SplitRegex {
 public:
  static Result<SplitRegex> compile(std::string_view pattern);
  static Result<SplitRegex> literal(std::string_view text);  // matches exactly this text

  // Appends all matches in ascending order, none overlapping; an empty match that touches the one before it is skipped,
  // as the reference's iterator does. Requires: valid UTF-8. Fails where a match needs too much work or memory.
  Status find_all(std::string_view text, RegexBudget& budget, std::vector<TextSpan>& matches) const;

 private:
  struct Compiled;
  explicit SplitRegex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
  friend struct RegexBuilder;
};

}  // namespace espalier
