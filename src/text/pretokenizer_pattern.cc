#include "text/pretokenizer_pattern.h"

#include <algorithm>
#include <optional>

namespace espalier {
namespace {

constexpr uint32_t kNone = 0xffffffffu;
constexpr size_t kMaxSets = 512;

// The part of an escape that stands for characters: one of them, or a set.
struct Escape {
  uint32_t code = kNone;
  CodeSet set;
};

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}

  Result<SplitPattern> read() {
    if (pattern_.size() > kMaxPatternBytes)
      return unsupported("the split regex has " + std::to_string(pattern_.size()) + " bytes, more than the " +
                         std::to_string(kMaxPatternBytes) + " that are read");
    while (at_ < pattern_.size()) {
      ESPALIER_TRY(item());
      if (out_.sets.size() > kMaxSets) return refuse("more than " + std::to_string(kMaxSets) + " different sets of characters");
    }
    if (!groups_.empty()) return wrong("a group is not closed");
    return std::move(out_);
  }

 private:
  struct Group {
    size_t start;  // index of its first item
    bool caseless, dot_all;
    bool repeatable;
  };

  Status item() {
    const size_t begin = at_;
    const uint32_t c = take();
    switch (c) {
      case '(': return open_group();
      case ')': return close_group();
      case '|': return mark("|");
      case '[': return char_class();
      case '.': return add_set(dot_all_ ? everything() : CodeSet::single('\n').inverted());
      case '*':
      case '+':
      case '?': return quantifier(std::string(1, static_cast<char>(c)), false, false);
      case '{': return brace(begin);
      case '^': return line_start();
      case '$': return line_end();
      case '\\': return escaped();
      default: return literal(c);
    }
  }

  // Atoms. `atom_` is the index of the first item of what a quantifier would repeat.
  Status add_set(const CodeSet& set) {
    atom_ = out_.items.size();
    last_literal_ = kNone;
    out_.items.push_back({set_index(set), {}});
    return {};
  }
  Status literal(uint32_t code) {
    if (!caseless_) return add_set(CodeSet::single(code));
    if (code > 0x7f) return refuse("a letter outside ASCII under (?i)");
    const uint32_t previous = last_literal_, folded = fold(code);
    // Full case folding lets one letter match two here: ß for ss, and the Latin ligatures.
    for (std::string_view pair : {"ss", "ff", "fi", "fl", "st"})
      if (previous == static_cast<uint32_t>(pair[0]) && folded == static_cast<uint32_t>(pair[1]))
        return refuse("'" + std::string(pair) + "' under (?i), which also means a ligature");
    ESPALIER_TRY(add_set(both_cases(CodeSet::single(code))));
    last_literal_ = folded;
    return {};
  }
  // Something between atoms: an alternative, an assertion.
  Status mark(const char* text) {
    out_.items.push_back({-1, text});
    atom_.reset();
    last_literal_ = kNone;
    return {};
  }

  Status line_start() {
    atom_.reset();
    last_literal_ = kNone;
    out_.items.push_back({-1, "(?:\\A|(?<="});
    out_.items.push_back({set_index(CodeSet::single('\n')), {}});
    out_.items.push_back({-1, ")(?!\\z))"});
    return {};
  }
  Status line_end() {
    atom_.reset();
    last_literal_ = kNone;
    out_.items.push_back({-1, "(?:\\z|(?="});
    out_.items.push_back({set_index(CodeSet::single('\n')), {}});
    out_.items.push_back({-1, "))"});
    return {};
  }

  Status escaped() {
    if (at_ >= pattern_.size()) return wrong("it ends in a backslash");
    if (pattern_[at_] == 'A' || pattern_[at_] == 'z') return mark(take() == 'A' ? "\\A" : "\\z");
    ESPALIER_ASSIGN(const Escape e, escape());
    if (e.code != kNone) return literal(e.code);
    if (caseless_) return refuse("a class under (?i)");
    return add_set(e.set);
  }

  // Behind a backslash, inside and outside of classes alike.
  Result<Escape> escape() {
    const uint32_t c = take();
    Escape e;
    switch (c) {
      case 'n': e.code = '\n'; return e;
      case 't': e.code = '\t'; return e;
      case 'r': e.code = '\r'; return e;
      case 'f': e.code = '\f'; return e;
      case 'v': e.code = '\v'; return e;
      case 'a': e.code = 7; return e;
      case 'e': e.code = 27; return e;
      case 's': e.set = regex_space(); return e;
      case 'S': e.set = regex_space().inverted(); return e;
      case 'd': e.set = regex_digit(); return e;
      case 'D': e.set = regex_digit().inverted(); return e;
      case 'w': e.set = regex_word(); return e;
      case 'W': e.set = regex_word().inverted(); return e;
      case 'p':
      case 'P': return property(c == 'P');
      case 'x': return hex_escape();
      case 'u': return hex_digits(4, 4, "\\u");
      default: break;
    }
    if (c < 0x80 && ((c >= '0' && c <= '9') || (fold(c) >= 'a' && fold(c) <= 'z')))
      return refuse(std::string("\\") + static_cast<char>(c));
    e.code = c;
    return e;
  }

  Result<Escape> property(bool negated) {
    const size_t close = pattern_.find('}', at_);
    if (at_ >= pattern_.size() || pattern_[at_] != '{' || close == std::string_view::npos)
      return wrong("\\p stands without {a name}");
    std::string_view name = pattern_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::optional<CodeSet> set = unicode_property(name);
    if (!set) return refuse("\\p{" + std::string(name) + "}");
    Escape e;
    e.set = negated ? set->inverted() : *set;
    return e;
  }

  Result<Escape> hex_escape() {
    if (at_ >= pattern_.size() || pattern_[at_] != '{') {
      ESPALIER_ASSIGN(const Escape e, hex_digits(1, 2, "\\x"));
      if (e.code > 0x7f) return refuse("\\x of a byte above 7f");
      return e;
    }
    ++at_;
    ESPALIER_ASSIGN(const Escape e, hex_digits(1, 8, "\\x{}"));
    if (at_ >= pattern_.size() || pattern_[at_++] != '}') return wrong("\\x{ is not closed");
    return e;
  }
  Result<Escape> hex_digits(int least, int most, const char* what) {
    uint64_t code = 0;
    int n = 0;
    for (; n < most && at_ < pattern_.size(); ++n) {
      const char c = pattern_[at_];
      const bool digit = c >= '0' && c <= '9', letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!digit && !letter) break;
      code = code * 16 + static_cast<uint64_t>(digit ? c - '0' : (c | 0x20) - 'a' + 10);
      ++at_;
    }
    if (n < least) return wrong(std::string(what) + " stands without its digits");
    if (code > kLastCodePoint || (code >= 0xd800 && code < 0xe000)) return wrong(std::string(what) + " names no character");
    Escape e;
    e.code = static_cast<uint32_t>(code);
    return e;
  }

  Status char_class() {
    const bool negated = at_ < pattern_.size() && pattern_[at_] == '^';
    if (negated) ++at_;
    std::vector<CodeRange> ranges;
    bool first = true, plain_ascii = true;
    for (;; first = false) {
      if (at_ >= pattern_.size()) return wrong("a class is not closed");
      if (pattern_[at_] == ']' && !first) break;
      ESPALIER_TRY(class_member(ranges, plain_ascii));
    }
    ++at_;
    CodeSet set(std::move(ranges));
    if (caseless_) {
      if (negated || !plain_ascii) return refuse("a class with more than ASCII letters under (?i)");
      set = both_cases(set);
    }
    return add_set(negated ? set.inverted() : set);
  }

  Status class_member(std::vector<CodeRange>& ranges, bool& plain_ascii) {
    ESPALIER_ASSIGN(const Escape low, class_atom());
    if (low.code == kNone) {
      plain_ascii = false;
      ranges.insert(ranges.end(), low.set.ranges().begin(), low.set.ranges().end());
      if (range_follows()) return refuse("a range that starts with a class");
      return {};
    }
    CodeRange range{low.code, low.code};
    if (range_follows()) {
      ++at_;
      ESPALIER_ASSIGN(const Escape high, class_atom());
      if (high.code == kNone) return refuse("a range that ends in a class");
      if (high.code < low.code) return wrong("a range of a class runs backwards");
      range.last = high.code;
    }
    if (range.last > 0x7f) plain_ascii = false;
    ranges.push_back(range);
    return {};
  }
  // A '-' that is not the last character of the class.
  bool range_follows() const { return at_ + 1 < pattern_.size() && pattern_[at_] == '-' && pattern_[at_ + 1] != ']'; }

  Result<Escape> class_atom() {
    if (pattern_[at_] == '[') return refuse("a class inside a class");
    if (pattern_.substr(at_).starts_with("&&")) return refuse("&& inside a class");
    const uint32_t c = take();
    if (c != '\\') {
      Escape e;
      e.code = c;
      return e;
    }
    if (at_ >= pattern_.size()) return wrong("a class is not closed");
    if (pattern_[at_] == 'b') return refuse("\\b inside a class");
    return escape();
  }

  Status open_group() {
    Group group{out_.items.size(), caseless_, dot_all_, true};
    const std::string_view rest = pattern_.substr(at_);
    std::string opening = "(?:";
    size_t used = 0;
    if (rest.starts_with("?")) {
      static constexpr std::string_view kKnown[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?m:", "?-i:", "?-m:"};
      const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](auto k) { return rest.starts_with(k); });
      if (known == std::end(kKnown)) return refuse("the group (" + std::string(rest.substr(0, 3)));
      used = known->size();
      if (known->find_first_of("im") == std::string_view::npos) opening = "(" + std::string(*known);
      group.repeatable = known->find_first_of("=!") == std::string_view::npos;
      if (*known == "?i:") caseless_ = true;
      if (*known == "?-i:") caseless_ = false;
      if (*known == "?m:") dot_all_ = true;
      if (*known == "?-m:") dot_all_ = false;
    }
    if (groups_.size() >= 200) return refuse("more than 200 nested groups");
    at_ += used;
    groups_.push_back(group);
    return mark(opening.c_str());
  }
  Status close_group() {
    if (groups_.empty()) return wrong("a ')' stands without its '('");
    const Group group = groups_.back();
    groups_.pop_back();
    caseless_ = group.caseless;
    dot_all_ = group.dot_all;
    out_.items.push_back({-1, ")"});
    last_literal_ = kNone;
    atom_.reset();
    if (group.repeatable) atom_ = group.start;
    return {};
  }

  // '{' starts an interval only where it reads as one; otherwise it is itself.
  Status brace(size_t begin) {
    size_t i = at_;
    const auto number = [&]() -> std::optional<uint32_t> {
      const size_t from = i;
      uint32_t n = 0;
      while (i < pattern_.size() && pattern_[i] >= '0' && pattern_[i] <= '9' && i - from < 6)
        n = n * 10 + static_cast<uint32_t>(pattern_[i++] - '0');
      return i > from ? std::optional(n) : std::nullopt;
    };
    const std::optional<uint32_t> low = number();
    std::optional<uint32_t> high = low;
    const bool comma = i < pattern_.size() && pattern_[i] == ',';
    if (comma) {
      ++i;
      high = number();
    }
    if (i >= pattern_.size() || pattern_[i] != '}' || (!low && !high)) {
      at_ = begin + 1;
      return literal('{');
    }
    at_ = i + 1;
    if (low.value_or(0) > 1000 || high.value_or(0) > 1000) return refuse("a repetition of more than 1000");
    if (high && *high < low.value_or(0)) return refuse("an interval that runs backwards");
    const std::string text = "{" + std::to_string(low.value_or(0)) + (comma ? "," : "") + (comma && high ? std::to_string(*high) : "") + "}";
    return quantifier(text, true, !comma);
  }

  // In this dialect `a{1,3}+` repeats the interval, whereas `a++` is possessive.
  Status quantifier(const std::string& text, bool interval, bool fixed) {
    if (!atom_) return refuse("a repetition of nothing");
    std::string suffix;
    if (at_ < pattern_.size() && (pattern_[at_] == '?' || pattern_[at_] == '+')) suffix = static_cast<char>(take());
    if (interval && fixed && suffix == "?") return refuse("{n}?");
    if (interval && suffix == "+") {
      out_.items.insert(out_.items.begin() + static_cast<ptrdiff_t>(*atom_), {-1, "(?:"});
      suffix = ")+";
    }
    if (at_ < pattern_.size() && (pattern_[at_] == '*' || pattern_[at_] == '+' || pattern_[at_] == '?'))
      return refuse("a repetition of a repetition");
    out_.items.push_back({-1, text + suffix});
    atom_.reset();
    last_literal_ = kNone;
    return {};
  }

  static uint32_t fold(uint32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
  // ASCII letters in both cases, and the two others that fold to one of them: long s and the Kelvin sign.
  static CodeSet both_cases(const CodeSet& set) {
    std::vector<CodeRange> out = set.ranges();
    for (uint32_t c = 'a'; c <= 'z'; ++c)
      if (set.contains(c) || set.contains(c - 32)) {
        out.push_back({c, c});
        out.push_back({c - 32, c - 32});
        if (c == 's') out.push_back({0x17f, 0x17f});
        if (c == 'k') out.push_back({0x212a, 0x212a});
      }
    return CodeSet(std::move(out));
  }
  static CodeSet everything() { return CodeSet({{0, kLastCodePoint}}); }

  int set_index(const CodeSet& set) {
    const auto it = std::find(out_.sets.begin(), out_.sets.end(), set);
    if (it == out_.sets.end()) {
      out_.sets.push_back(set);
      return static_cast<int>(out_.sets.size() - 1);
    }
    return static_cast<int>(it - out_.sets.begin());
  }
  uint32_t take() { return next_code_point(pattern_, at_); }
  Status refuse(const std::string& what) const { return unsupported("the split regex uses " + what + ", which is not supported" + where()); }
  Status wrong(const std::string& what) const { return corrupt("the split regex is not well formed: " + what + where()); }
  std::string where() const { return " (byte " + std::to_string(at_) + " of `" + std::string(pattern_) + "`)"; }

  std::string_view pattern_;
  size_t at_ = 0;
  SplitPattern out_;
  std::vector<Group> groups_;
  std::optional<size_t> atom_;
  uint32_t last_literal_ = kNone;  // folded, if the item before this one is a letter under (?i)
  bool caseless_ = false, dot_all_ = false;
};

}  // namespace

Result<SplitPattern> parse_split_pattern(std::string_view pattern) {
  if (const size_t bad = find_invalid_utf8(pattern); bad != std::string_view::npos)
    return corrupt("the split regex is not valid UTF-8 at byte " + std::to_string(bad));
  return PatternReader(pattern).read();
}

SplitPattern literal_pattern(std::string_view text) {
  SplitPattern out;
  for (size_t i = 0; i < text.size();) {
    const CodeSet set = CodeSet::single(next_code_point(text, i));
    auto it = std::find(out.sets.begin(), out.sets.end(), set);
    if (it == out.sets.end()) it = out.sets.insert(it, set);
    out.items.push_back({static_cast<int>(it - out.sets.begin()), {}});
  }
  return out;
}

}  // namespace espalier
