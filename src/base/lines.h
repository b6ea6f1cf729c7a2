// The lines of a text that hold one record each (JSON lines).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace espalier {

struct TextLine {
  std::string_view text;  // of the caller's text, without the newline
  size_t number;          // from 1; blank lines count
};

// Those that hold more than blanks.
std::vector<TextLine> record_lines(std::string_view text);

}  // namespace espalier
