#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "text/unicode_tables.h"

namespace espalier {
namespace {

using unicode_tables::kCategoryRuns;

struct CategoryName {
  std::string_view brief, full;  // lower case, no separators
};
// In the order of the numbers in kCategoryRuns.
constexpr CategoryName kCategories[] = {
    {"lu", "uppercaseletter"},    {"ll", "lowercaseletter"},  {"lt", "titlecaseletter"},    {"lm", "modifierletter"},
    {"lo", "otherletter"},        {"mn", "nonspacingmark"},   {"mc", "spacingmark"},        {"me", "enclosingmark"},
    {"nd", "decimalnumber"},      {"nl", "letternumber"},     {"no", "othernumber"},        {"pc", "connectorpunctuation"},
    {"pd", "dashpunctuation"},    {"ps", "openpunctuation"},  {"pe", "closepunctuation"},   {"pi", "initialpunctuation"},
    {"pf", "finalpunctuation"},   {"po", "otherpunctuation"}, {"sm", "mathsymbol"},         {"sc", "currencysymbol"},
    {"sk", "modifiersymbol"},     {"so", "othersymbol"},      {"zs", "spaceseparator"},     {"zl", "lineseparator"},
    {"zp", "paragraphseparator"}, {"cc", "control"},          {"cf", "format"},             {"cs", "surrogate"},
    {"co", "privateuse"},         {"cn", "unassigned"},
};
constexpr CategoryName kGroups[] = {
    {"l", "letter"}, {"m", "mark"}, {"n", "number"}, {"p", "punctuation"}, {"s", "symbol"}, {"z", "separator"}, {"c", "other"},
};

std::string loose(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    out += (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// The categories whose short name starts with `prefix`.
CodeSet categories(std::string_view prefix) {
  std::vector<CodeRange> ranges;
  const size_t n = std::size(kCategoryRuns);
  for (size_t i = 0; i < n; ++i) {
    if (!kCategories[kCategoryRuns[i].category].brief.starts_with(prefix)) continue;
    ranges.push_back({kCategoryRuns[i].first, i + 1 < n ? kCategoryRuns[i + 1].first - 1 : kLastCodePoint});
  }
  return CodeSet(std::move(ranges));
}

bool in_ranges(std::span<const CodeRange> ranges, uint32_t code) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), code, [](uint32_t c, const CodeRange& r) { return c < r.first; });
  return it != ranges.begin() && code <= std::prev(it)->last;
}

CodeSet from_table(std::span<const CodeRange> table) { return CodeSet({table.begin(), table.end()}); }

}  // namespace

CodeSet::CodeSet(std::vector<CodeRange> any_order) {
  std::sort(any_order.begin(), any_order.end(), [](CodeRange a, CodeRange b) { return a.first < b.first; });
  for (const CodeRange& r : any_order) {
    if (!ranges_.empty() && r.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, r.last);
    else
      ranges_.push_back(r);
  }
}

bool CodeSet::contains(uint32_t code) const { return in_ranges(ranges_, code); }

CodeSet CodeSet::united(const CodeSet& other) const {
  std::vector<CodeRange> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodeSet(std::move(all));
}

CodeSet CodeSet::inverted() const {
  std::vector<CodeRange> gaps;
  uint32_t next = 0;
  for (const CodeRange& r : ranges_) {
    if (r.first > next) gaps.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) gaps.push_back({next, kLastCodePoint});
  return CodeSet(std::move(gaps));
}

std::optional<CodeSet> unicode_property(std::string_view name) {
  const std::string key = loose(name);
  if (key == "han") return from_table(unicode_tables::kHan);
  for (const CategoryName& group : kGroups)
    if (key == group.brief || key == group.full) return categories(group.brief);
  for (const CategoryName& category : kCategories)
    if (key == category.brief || key == category.full) return categories(category.brief);
  return std::nullopt;
}

CodeSet regex_space() { return from_table(unicode_tables::kRegexSpace); }
CodeSet regex_word() { return from_table(unicode_tables::kRegexWord); }
CodeSet regex_digit() { return categories("nd"); }

bool is_numeric(uint32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return in_ranges(unicode_tables::kNumeric, code);
}
bool is_added_token_space(uint32_t code) { return in_ranges(unicode_tables::kAddedTokenSpace, code); }
bool is_added_token_word(uint32_t code) { return in_ranges(unicode_tables::kAddedTokenWord, code); }

Utf8Sequence first_utf8_sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, Utf8Sequence::valid};
  size_t length = 0;
  unsigned low = 0x80, high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {1, Utf8Sequence::invalid};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, Utf8Sequence::unfinished};
    if (byte(i) < low || byte(i) > high) return {i, Utf8Sequence::invalid};
    low = 0x80;
    high = 0xbf;
  }
  return {length, Utf8Sequence::valid};
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Sequence s = first_utf8_sequence(text.substr(i));
    if (s.kind != Utf8Sequence::valid) return i;
    i += s.length;
  }
  return std::string_view::npos;
}

uint32_t code_point_before(std::string_view text, size_t position) {
  size_t start = position - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
  return next_code_point(text, start);
}

void append_utf8(uint32_t code, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

}  // namespace espalier
