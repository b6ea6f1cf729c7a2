#include "text/unicode_nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/unicode_tables.h"

namespace espalier {
namespace {

// Both sets as bits of a flat map: one look-up for each code point.
class NormalMap {
 public:
  NormalMap() : bits_(kLastCodePoint + 1) {
    for (const CodeRange& r : unicode_tables::kNfcRelevant)
      for (uint32_t c = r.first; c <= r.last; ++c) bits_[c] |= 1;
    for (const CodeRange& r : unicode_tables::kNfcJoins)
      for (uint32_t c = r.first; c <= r.last; ++c) bits_[c] |= 2;
  }
  bool relevant(uint32_t c) const { return bits_[c] & 1; }
  bool joins(uint32_t c) const { return bits_[c] & 2; }

 private:
  std::vector<uint8_t> bits_;
};

const NormalMap& normal_map() {
  static const NormalMap map;
  return map;
}

int combining_class(int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Sorts a run of marks by class, equal ones in the order they came.
void order_marks(std::span<int32_t> marks) {
  if (marks.size() < 2) return;
  std::vector<std::pair<int, size_t>> keys;
  for (size_t i = 0; i < marks.size(); ++i) keys.emplace_back(combining_class(marks[i]), i);
  std::sort(keys.begin(), keys.end());
  const std::vector<int32_t> before(marks.begin(), marks.end());
  for (size_t i = 0; i < marks.size(); ++i) marks[i] = before[keys[i].second];
}

// utf8proc's own ordering of marks is quadratic in their number, so decomposition and ordering are done apart from
// composition.
void decompose(std::string_view text, std::vector<int32_t>& codes) {
  codes.clear();
  for (size_t i = 0; i < text.size();) {
    const auto code = static_cast<int32_t>(next_code_point(text, i));
    int32_t parts[16];
    int boundary = 0;
    const auto n = utf8proc_decompose_char(code, parts, 16, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE), &boundary);
    if (n < 1 || n > 16)
      codes.push_back(code);
    else
      codes.insert(codes.end(), parts, parts + n);
  }
  for (size_t i = 0; i < codes.size();) {
    size_t end = i;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    order_marks(std::span(codes).subspan(i, end - i));
    i = end + 1;
  }
}

std::string compose(std::string_view text, std::vector<int32_t>& codes) {
  decompose(text, codes);
  const auto n = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  ESP_CHECK(n >= 0);
  std::string out;
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(static_cast<uint32_t>(codes[static_cast<size_t>(i)]), out);
  return out;
}

// Cuts the text into clusters (one code point and the joining ones behind it) and calls copy(begin, end) for text that
// stays and change(begin, end) for what must be composed, both in ascending order.
template <typename Copy, typename Change>
void walk(std::string_view text, Copy copy, Change change) {
  const NormalMap& map = normal_map();
  size_t kept = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t first = next_code_point(text, i);
    const size_t marks = i;
    for (size_t after = i; after < text.size() && map.joins(next_code_point(text, after));) i = after;
    if (i == marks && first < 0xc0) continue;
    // A starter that the reference does not know stands by itself; the marks behind it have nothing to join.
    const size_t from = map.relevant(first) ? begin : marks;
    if (from == i) continue;
    copy(kept, from);
    change(from, i);
    kept = i;
  }
  copy(kept, text.size());
}

// Asks for the origins of ascending slices of a text; linear over all questions together.
class OriginCursor {
 public:
  explicit OriginCursor(const MarkedText& text) : text_(text) {}
  void append(size_t begin, size_t end, MarkedText& out) {
    while (begin < end) {
      const MarkedText::Run& run = seek(begin);
      const size_t stop = std::min(end, run.end);
      out.append(std::string_view(text_.text()).substr(begin, stop - begin), run.origin);
      begin = stop;
    }
  }
  bool is_control(size_t begin, size_t end) {
    const MarkedText::Run& run = seek(begin);
    return run.origin == Origin::control && end <= run.end;
  }

 private:
  const MarkedText::Run& seek(size_t position) {
    while (text_.runs()[run_].end <= position) ++run_;
    return text_.runs()[run_];
  }
  const MarkedText& text_;
  size_t run_ = 0;
};

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string out;
  std::vector<int32_t> codes;
  walk(
      text, [&](size_t begin, size_t end) { out += text.substr(begin, end - begin); },
      [&](size_t begin, size_t end) { out += compose(text.substr(begin, end - begin), codes); });
  return out;
}

MarkedText to_nfc(const MarkedText& text) {
  MarkedText out;
  OriginCursor origins(text);
  std::vector<int32_t> codes;
  const std::string_view bytes = text.text();
  walk(
      bytes, [&](size_t begin, size_t end) { origins.append(begin, end, out); },
      [&](size_t begin, size_t end) {
        const std::string_view before = bytes.substr(begin, end - begin);
        const std::string after = compose(before, codes);
        const auto same = std::mismatch(before.begin(), before.end(), after.begin(), after.end());
        const auto prefix = static_cast<size_t>(same.first - before.begin());
        const Origin joined = origins.is_control(begin, end) ? Origin::control : Origin::data;
        origins.append(begin, begin + prefix, out);
        out.append(std::string_view(after).substr(prefix), joined);
      });
  return out;
}

}  // namespace espalier
