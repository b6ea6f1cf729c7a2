#include "base/lines.h"

#include <algorithm>

namespace espalier {

std::vector<TextLine> record_lines(std::string_view text) {
  std::vector<TextLine> out;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) out.push_back({line, number});
  }
  return out;
}

}  // namespace espalier
