#include "text/marked_text.h"

#include <algorithm>

namespace espalier {

void MarkedText::append(const MarkedText& other) {
  size_t begin = 0;
  for (const Run& run : other.runs_) {
    append(std::string_view(other.text_).substr(begin, run.end - begin), run.origin);
    begin = run.end;
  }
}

MarkedText MarkedText::substr(size_t begin, size_t length) const {
  MarkedText out;
  begin = std::min(begin, text_.size());
  const size_t end = begin + std::min(length, text_.size() - begin);
  size_t from = 0;
  for (const Run& run : runs_) {
    const size_t lo = std::max(from, begin), hi = std::min(run.end, end);
    if (lo < hi) out.append(std::string_view(text_).substr(lo, hi - lo), run.origin);
    from = run.end;
  }
  return out;
}

bool MarkedText::is_control(size_t begin, size_t end) const {
  size_t from = 0;
  for (const Run& run : runs_) {
    if (from < end && run.end > begin && run.origin != Origin::control) return false;
    from = run.end;
  }
  return end <= text_.size();
}

}  // namespace espalier
