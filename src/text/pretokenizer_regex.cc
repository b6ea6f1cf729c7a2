#include "text/pretokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "text/pretokenizer_pattern.h"

namespace espalier {
namespace {

constexpr int64_t kBudgetNs = 2'000'000'000;
constexpr int64_t kBudgetNsPerByte = 2'000;
constexpr int64_t kLookEveryNs = 5'000'000;
// Backtracking steps of one attempt at one place, and more for each character that is left.
constexpr size_t kMatchSteps = 2'000'000, kMatchStepsPerCharacter = 8;
constexpr uint32_t kHeapLimitKiB = 256 * 1024;
// Places that one PCRE2 call may try: the budget is looked at between calls.
constexpr size_t kWindow = 64;
constexpr size_t kMaxParts = 256;

int64_t clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Code point -> number of its part. Two levels, equal pages stored once.
class PartMap {
 public:
  // `parts` holds, ascending and without gaps, the first code point of each interval and its part.
  explicit PartMap(const std::vector<std::pair<uint32_t, uint8_t>>& parts) {
    constexpr uint16_t kUnset = 0xffff;
    std::map<std::array<uint8_t, 256>, uint16_t> seen;
    std::array<uint16_t, 256> whole;  // pages that are one part throughout, by part: most of them
    whole.fill(kUnset);
    std::array<uint8_t, 256> page;
    size_t interval = 0;
    for (uint32_t base = 0; base <= kLastCodePoint; base += 256) {
      while (interval + 1 < parts.size() && parts[interval + 1].first <= base) ++interval;
      const bool uniform = interval + 1 == parts.size() || parts[interval + 1].first >= base + 256;
      uint16_t& known = whole[parts[interval].second];
      if (uniform && known != kUnset) {
        index_[base / 256] = known;
        continue;
      }
      for (uint32_t i = 0; i < 256; ++i) {
        while (interval + 1 < parts.size() && parts[interval + 1].first <= base + i) ++interval;
        page[i] = parts[interval].second;
      }
      const auto [it, fresh] = seen.emplace(page, static_cast<uint16_t>(pages_.size()));
      if (fresh) pages_.push_back(page);
      index_[base / 256] = it->second;
      if (uniform) known = it->second;
    }
  }
  uint8_t operator[](uint32_t code) const { return pages_[index_[code / 256]][code % 256]; }

 private:
  std::array<uint16_t, (kLastCodePoint + 1) / 256> index_;
  std::vector<std::array<uint8_t, 256>> pages_;
};

void append_hex(unsigned part, std::string& out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += "\\x";
  out += kDigits[part / 16];
  out += kDigits[part % 16];
}

// A byte class that holds the given parts. An empty set can never match, whatever repeats it.
std::string byte_class(const std::vector<uint8_t>& parts) {
  if (parts.empty()) return "(?:(?!))";
  std::string out = "[";
  for (size_t i = 0; i < parts.size();) {
    size_t j = i;
    while (j + 1 < parts.size() && parts[j + 1] == parts[j] + 1) ++j;
    append_hex(parts[i], out);
    if (j > i + 1) out += '-';
    if (j > i) append_hex(parts[j], out);
    i = j + 1;
  }
  return out + ']';
}

struct MatchScratch {
  MatchScratch(const pcre2_code* code, size_t characters)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)), context(pcre2_match_context_create(nullptr)) {
    if (context == nullptr) return;
    pcre2_set_match_limit(context, static_cast<uint32_t>(std::min<size_t>(kMatchSteps + kMatchStepsPerCharacter * characters, 0x7fffffff)));
    pcre2_set_heap_limit(context, kHeapLimitKiB);
  }
  ~MatchScratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  pcre2_match_data* data;
  pcre2_match_context* context;
};

}  // namespace

RegexBudget::RegexBudget(size_t text_bytes)
    : deadline_ns_(clock_ns(CLOCK_THREAD_CPUTIME_ID) + kBudgetNs +
                   kBudgetNsPerByte * static_cast<int64_t>(std::min<size_t>(text_bytes, size_t{1} << 40))),
      next_look_ns_(clock_ns(CLOCK_MONOTONIC) + kLookEveryNs) {}

bool RegexBudget::spent() {
  const int64_t now = clock_ns(CLOCK_MONOTONIC);
  if (now < next_look_ns_) return false;
  next_look_ns_ = now + kLookEveryNs;
  return clock_ns(CLOCK_THREAD_CPUTIME_ID) > deadline_ns_;
}

struct SplitRegex::Compiled {
  Compiled(PartMap map, pcre2_code* compiled) : parts(std::move(map)), code(compiled) {}
  ~Compiled() { pcre2_code_free(code); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  PartMap parts;
  pcre2_code* code;
};

struct RegexBuilder {
  static Result<SplitRegex> build(const SplitPattern& pattern, std::string_view shown) {
    std::vector<std::vector<uint8_t>> parts_of(pattern.sets.size());
    ESPALIER_ASSIGN(const auto intervals, partition(pattern.sets, parts_of, shown));
    std::string bytes;
    for (const PatternItem& item : pattern.items)
      bytes += item.set < 0 ? item.text : byte_class(parts_of[static_cast<size_t>(item.set)]);
    int error = 0;
    size_t offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(bytes.data()), bytes.size(),
                                     PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_USE_OFFSET_LIMIT, &error, &offset, nullptr);
    if (code == nullptr) {
      PCRE2_UCHAR message[160] = {};
      pcre2_get_error_message(error, message, sizeof message);
      return unsupported("the split regex cannot be compiled (" + std::string(reinterpret_cast<const char*>(message)) + "): `" +
                         std::string(shown) + "`");
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter runs; same matches
    return SplitRegex(std::make_shared<const SplitRegex::Compiled>(PartMap(intervals), code));
  }

 private:
  // Cuts all code points into the classes that no set tells apart.
  static Result<std::vector<std::pair<uint32_t, uint8_t>>> partition(const std::vector<CodeSet>& sets,
                                                                     std::vector<std::vector<uint8_t>>& parts_of,
                                                                     std::string_view shown) {
    struct Edge {
      uint32_t at;
      size_t set;
    };
    std::vector<Edge> edges;  // each flips the membership in one set
    for (size_t s = 0; s < sets.size(); ++s)
      for (const CodeRange& r : sets[s].ranges()) {
        edges.push_back({r.first, s});
        if (r.last < kLastCodePoint) edges.push_back({r.last + 1, s});
      }
    std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
    std::vector<std::pair<uint32_t, uint8_t>> intervals;
    std::map<std::vector<bool>, uint8_t> known;
    std::vector<bool> member(sets.size());
    size_t next = 0;
    for (uint32_t at = 0;;) {
      for (; next < edges.size() && edges[next].at == at; ++next) member[edges[next].set].flip();
      if (!known.contains(member)) {
        if (known.size() == kMaxParts)
          return unsupported("the split regex tells more than 256 kinds of characters apart: `" + std::string(shown) + "`");
        const auto part = static_cast<uint8_t>(known.size());
        known.emplace(member, part);
        for (size_t s = 0; s < sets.size(); ++s)
          if (member[s]) parts_of[s].push_back(part);
      }
      intervals.emplace_back(at, known[member]);
      if (next == edges.size()) return intervals;
      at = edges[next].at;
    }
  }
};

Result<SplitRegex> SplitRegex::compile(std::string_view pattern) {
  ESPALIER_ASSIGN(const SplitPattern parsed, parse_split_pattern(pattern));
  return RegexBuilder::build(parsed, pattern);
}

Result<SplitRegex> SplitRegex::literal(std::string_view text) {
  if (text.size() > kMaxPatternBytes) return unsupported("a Split string of more than 16384 bytes is not supported");
  return RegexBuilder::build(literal_pattern(text), text);
}

Status SplitRegex::find_all(std::string_view text, RegexBudget& budget, std::vector<TextSpan>& matches) const {
  std::string parts;
  parts.reserve(text.size());
  for (size_t i = 0; i < text.size();) parts += static_cast<char>(compiled_->parts[next_code_point(text, i)]);

  const MatchScratch scratch(compiled_->code, parts.size());
  if (scratch.data == nullptr || scratch.context == nullptr) return {Code::out_of_memory, "there is no memory for a regex match"};
  const size_t n = parts.size();
  // Where we are, as a character and as a byte of the text; the two move together.
  size_t at_char = 0, at_byte = 0;
  const auto byte_of = [&](size_t character) {
    if (n == text.size()) return character;
    for (; at_char < character; ++at_char) next_code_point(text, at_byte);
    return at_byte;
  };
  size_t start = 0, last_end = static_cast<size_t>(-1);
  bool interpret = false;
  while (start <= n) {
    if (budget.spent()) return unsupported("the split regex of this tokenizer needs too much time on this text");
    const size_t limit = std::min(n, start + kWindow);
    pcre2_set_offset_limit(scratch.context, limit);
    int rc = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(parts.data()), n, start, interpret ? PCRE2_NO_JIT : 0u,
                         scratch.data, scratch.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      interpret = true;
      continue;
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
      start = limit + 1;
      continue;
    }
    if (rc < 0)
      return unsupported("the split regex of this tokenizer needs too many steps on this text (PCRE2 error " + std::to_string(rc) + ")");
    const size_t* pair = pcre2_get_ovector_pointer(scratch.data);
    const size_t begin = pair[0], end = pair[1];
    if (begin == end && end == last_end) {
      start = end + 1;
      continue;
    }
    const size_t begin_byte = byte_of(begin);
    matches.push_back({begin_byte, byte_of(end)});
    start = last_end = end;
  }
  return {};
}

}  // namespace espalier
