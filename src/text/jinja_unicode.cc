#include "text/jinja_unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace espalier::jinja {
namespace {

struct CaseRun {
  uint32_t first, last, stride;
  int32_t delta;
};
struct CaseMulti {
  uint32_t code;
  const char* text;
};
struct CodeRange {
  uint32_t first, last;
};

#include "text/jinja_unicode_table.inc"

template <size_t N>
bool in_ranges(const CodeRange (&table)[N], char32_t c) {
  const auto it = std::upper_bound(std::begin(table), std::end(table), uint32_t{c},
                                   [](uint32_t v, const CodeRange& r) { return v < r.first; });
  return it != std::begin(table) && c <= std::prev(it)->last;
}

// The case mapping of one character, or nullptr / 0 where it maps to itself.
template <size_t N, size_t M>
bool lookup(const CaseRun (&runs)[N], const CaseMulti (&multi)[M], char32_t c, std::string& out) {
  const auto m = std::lower_bound(std::begin(multi), std::end(multi), uint32_t{c},
                                  [](const CaseMulti& e, uint32_t v) { return e.code < v; });
  if (m != std::end(multi) && m->code == c) {
    out += m->text;
    return true;
  }
  // Runs with stride 2 may overlap their neighbours, so a few entries before the upper bound are looked at.
  auto it = std::upper_bound(std::begin(runs), std::end(runs), uint32_t{c},
                             [](uint32_t v, const CaseRun& r) { return v < r.first; });
  for (int back = 0; back < 3 && it != std::begin(runs); ++back) {
    --it;
    if (c >= it->first && c <= it->last && (c - it->first) % it->stride == 0) {
      append_utf8(static_cast<char32_t>(static_cast<int64_t>(c) + it->delta), out);
      return true;
    }
  }
  return false;
}

bool map_one(char32_t c, Case mode, std::string& out) {
  switch (mode) {
    case Case::lower: return lookup(kLowerRuns, kLowerMulti, c, out);
    case Case::upper: return lookup(kUpperRuns, kUpperMulti, c, out);
    case Case::title: return lookup(kTitleRuns, kTitleMulti, c, out);
  }
  return false;
}


// Greek capital sigma is the one letter whose lower case depends on its neighbours: final after a cased letter and
// before none. Case-ignorable marks between letters are not looked through.
bool is_final_sigma(std::string_view text, const CodePoint& sigma) {
  const bool before = sigma.begin > 0 && is_cased(decode_before(text, sigma.begin).value);
  const size_t next = sigma.begin + sigma.size;
  return before && !(next < text.size() && is_cased(decode_at(text, next).value));
}

// Walks the runs along with the characters, so that a long text is mapped in linear time.
template <typename Mode>
MarkedText map_each(const MarkedText& in, Mode mode) {
  MarkedText out;
  const std::string& s = in.text();
  size_t run = 0;
  std::string piece;
  for (size_t at = 0; at < s.size();) {
    const CodePoint c = decode_at(s, at);
    while (in.runs()[run].end <= at) ++run;
    piece.clear();
    const Case m = mode(c.value);
    if (m == Case::lower && c.value == 0x3a3)
      piece = is_final_sigma(s, c) ? "\u03c2" : "\u03c3";
    else if (!map_one(c.value, m, piece))
      piece.assign(s, at, c.size);
    out.append(piece, in.runs()[run].origin);
    at += c.size;
  }
  return out;
}

}  // namespace

CodePoint decode_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char b = byte(0);
  const size_t left = text.size() - at;
  const auto cont = [&](size_t i) { return i < left && (byte(i) & 0xc0) == 0x80; };
  if (b < 0x80) return {b, at, 1};
  if (b >= 0xc2 && b < 0xe0 && cont(1)) return {static_cast<char32_t>((b & 31) << 6 | (byte(1) & 63)), at, 2};
  if (b >= 0xe0 && b < 0xf0 && cont(1) && cont(2)) {
    const char32_t c = static_cast<char32_t>((b & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63));
    if (c >= 0x800 && (c < 0xd800 || c > 0xdfff)) return {c, at, 3};
  }
  if (b >= 0xf0 && b < 0xf5 && cont(1) && cont(2) && cont(3)) {
    const char32_t c =
        static_cast<char32_t>((b & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63));
    if (c >= 0x10000 && c <= 0x10ffff) return {c, at, 4};
  }
  return {0xfffd, at, 1};
}

CodePoint decode_before(std::string_view text, size_t end) {
  for (size_t back = 1; back <= 4 && back <= end; ++back) {
    if ((static_cast<unsigned char>(text[end - back]) & 0xc0) == 0x80) continue;
    const CodePoint c = decode_at(text.substr(0, end), end - back);
    if (c.size == back) return c;
    break;
  }
  return {0xfffd, end - 1, 1};
}

void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 63));
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); ++n) at += decode_at(text, at).size;
  return n;
}

size_t offset_of(std::string_view text, size_t n) {
  size_t at = 0;
  for (; n > 0 && at < text.size(); --n) at += decode_at(text, at).size;
  return at;
}

std::vector<size_t> code_point_offsets(std::string_view text) {
  std::vector<size_t> out;
  for (size_t at = 0; at < text.size(); at += decode_at(text, at).size) out.push_back(at);
  out.push_back(text.size());
  return out;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}
bool is_printable(char32_t c) { return !in_ranges(kUnprintable, c); }
bool is_alpha(char32_t c) { return in_ranges(kAlpha, c); }
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_cased(char32_t c) {
  std::string ignored;
  return lookup(kLowerRuns, kLowerMulti, c, ignored) || lookup(kUpperRuns, kUpperMulti, c, ignored) ||
         lookup(kTitleRuns, kTitleMulti, c, ignored);
}

MarkedText map_case(const MarkedText& text, Case mode) {
  return map_each(text, [mode](char32_t) { return mode; });
}

MarkedText capitalize(const MarkedText& text) {
  bool first = true;
  return map_each(text, [&](char32_t) { return std::exchange(first, false) ? Case::title : Case::lower; });
}

MarkedText title_words(const MarkedText& text) {
  bool in_word = false;
  return map_each(text, [&](char32_t c) {
    const bool was = in_word;
    in_word = is_cased(c);
    return was ? Case::lower : Case::title;
  });
}

MarkedText swap_case(const MarkedText& text) {
  return map_each(text, [](char32_t c) {
    std::string ignored;
    return map_one(c, Case::lower, ignored) ? Case::lower : Case::upper;
  });
}

size_t skip_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = decode_at(text, at);
    if (!is_space(c.value)) break;
    at += c.size;
  }
  return at;
}

size_t trim_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const CodePoint c = decode_before(text, end);
    if (!is_space(c.value)) break;
    end = c.begin;
  }
  return end;
}

}  // namespace espalier::jinja
