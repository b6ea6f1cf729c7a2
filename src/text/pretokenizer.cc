#include "text/pretokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace espalier {
namespace {

// What ByteLevel splits by when use_regex is on: GPT-2's rule.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The whole text as parts that are or are not a match; an empty match is an empty part.
struct Part {
  TextSpan span;
  bool match;
};

std::string type_of(const Value& json) {
  const Value* type = json.find("type");
  return type != nullptr && type->is_string() ? type->as_string() : std::string();
}

Result<bool> flag(const Value& json, const char* name, std::optional<bool> absent) {
  const Value* v = json.find(name);
  if (v == nullptr && absent) return *absent;
  if (v == nullptr || !v->is_bool()) return corrupt("pre_tokenizer " + type_of(json) + ": expected true or false in \"" + name + "\"");
  return v->as_bool();
}

void parts_of_matches(std::string_view text, const std::vector<TextSpan>& matches, bool invert, std::vector<Part>& parts) {
  size_t previous = 0;
  for (const TextSpan& m : matches) {
    if (previous != m.begin) parts.push_back({{previous, m.begin}, invert});
    parts.push_back({m, !invert});
    previous = m.end;
  }
  if (previous != text.size()) parts.push_back({{previous, text.size()}, invert});
}

void parts_of_digits(std::string_view text, std::vector<Part>& parts) {
  size_t previous = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (!is_numeric(next_code_point(text, i))) continue;
    if (previous < begin) parts.push_back({{previous, begin}, false});
    parts.push_back({{begin, i}, true});
    previous = i;
  }
  if (previous < text.size()) parts.push_back({{previous, text.size()}, false});
}

// `joins(part, previous part was a match)` tells whether a part grows the piece before it.
template <typename Joins>
void fold(const std::vector<Part>& parts, Joins joins, std::vector<TextSpan>& out) {
  const size_t base = out.size();
  bool previous = false;
  for (const Part& part : parts) {
    if (joins(part.match, previous) && out.size() > base)
      out.back().end = part.span.end;
    else
      out.push_back(part.span);
    previous = part.match;
  }
}

void fold_backwards(const std::vector<Part>& parts, std::vector<TextSpan>& out) {
  const size_t base = out.size();
  bool previous = false;
  for (auto it = parts.rbegin(); it != parts.rend(); ++it) {
    if (it->match && !previous && out.size() > base)
      out.back().begin = it->span.begin;
    else
      out.push_back(it->span);
    previous = it->match;
  }
  std::reverse(out.begin() + static_cast<ptrdiff_t>(base), out.end());
}

// Appends what a behaviour makes of the parts. Empty pieces are still there.
void apply(SplitBehavior behavior, const std::vector<Part>& parts, std::vector<TextSpan>& out) {
  switch (behavior) {
    case SplitBehavior::removed:
      for (const Part& p : parts)
        if (!p.match) out.push_back(p.span);
      return;
    case SplitBehavior::isolated:
      for (const Part& p : parts) out.push_back(p.span);
      return;
    case SplitBehavior::contiguous: return fold(parts, [](bool match, bool previous) { return match == previous; }, out);
    case SplitBehavior::merged_with_previous: return fold(parts, [](bool match, bool previous) { return match && !previous; }, out);
    case SplitBehavior::merged_with_next: return fold_backwards(parts, out);
  }
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const Value& json) {
  PreTokenizer out;
  ESPALIER_TRY(out.add(json, 0));
  if (!out.byte_level_) return unsupported("pre_tokenizer: only byte-level tokenizers are supported, and this one has no ByteLevel step", "pre_tokenizer");
  return out;
}

Status PreTokenizer::add(const Value& json, int depth) {
  const std::string type = type_of(json);
  if (type.empty()) return corrupt("pre_tokenizer: expected an object with a \"type\"", "pre_tokenizer");
  if (byte_level_ && type != "Sequence") return unsupported("pre_tokenizer: " + type + " after ByteLevel is not supported", "pre_tokenizer");
  if (type == "Split") return add_split(json);
  if (type == "Digits") return add_digits(json);
  if (type == "ByteLevel") return add_byte_level(json);
  if (type != "Sequence") return unsupported("pre_tokenizer \"" + type + "\" is not supported (known: Split, Digits, ByteLevel, Sequence)", "pre_tokenizer");
  const Value* list = json.find("pretokenizers");
  if (list == nullptr || !list->is_array()) return corrupt("pre_tokenizer Sequence: expected a list \"pretokenizers\"", "pre_tokenizer");
  if (depth == 8) return unsupported("pre_tokenizer: more than 8 nested sequences", "pre_tokenizer");
  for (const Value& step : list->as_array()) ESPALIER_TRY(add(step, depth + 1));
  return {};
}

Status PreTokenizer::add_split(const Value& json) {
  static constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  };
  SplitStep step;
  const Value* behavior = json.find("behavior");
  const auto* known = behavior == nullptr || !behavior->is_string()
                          ? std::end(kBehaviors)
                          : std::find_if(std::begin(kBehaviors), std::end(kBehaviors), [&](const auto& b) { return b.first == behavior->as_string(); });
  if (known == std::end(kBehaviors)) return unsupported("pre_tokenizer Split: the behavior is missing or unknown", "pre_tokenizer");
  step.behavior = known->second;
  ESPALIER_ASSIGN(step.invert, flag(json, "invert", false));
  if (steps_.size() >= 32) return unsupported("pre_tokenizer: more than 32 steps", "pre_tokenizer");

  const Value *regex = json.find_path("pattern.Regex"), *text = json.find_path("pattern.String");
  if (regex != nullptr && regex->is_string()) {
    ESPALIER_ASSIGN(step.regex, SplitRegex::compile(regex->as_string()));
  } else if (text != nullptr && text->is_string()) {
    ESPALIER_ASSIGN(step.regex, SplitRegex::literal(text->as_string()));
  } else {
    return unsupported("pre_tokenizer Split: expected a pattern {\"Regex\": ...} or {\"String\": ...}", "pre_tokenizer");
  }
  steps_.push_back(std::move(step));
  return {};
}

Status PreTokenizer::add_digits(const Value& json) {
  ESPALIER_ASSIGN(const bool individual, flag(json, "individual_digits", false));
  if (steps_.size() >= 32) return unsupported("pre_tokenizer: more than 32 steps", "pre_tokenizer");
  SplitStep step;
  step.behavior = individual ? SplitBehavior::isolated : SplitBehavior::contiguous;
  steps_.push_back(std::move(step));
  return {};
}

Status PreTokenizer::add_byte_level(const Value& json) {
  ESPALIER_ASSIGN(add_prefix_space_, flag(json, "add_prefix_space", std::nullopt));
  ESPALIER_ASSIGN(const bool use_regex, flag(json, "use_regex", true));
  if (use_regex) {
    byte_level_split_.emplace();
    ESPALIER_ASSIGN(byte_level_split_->regex, SplitRegex::compile(kByteLevelPattern));
  }
  byte_level_ = true;
  return {};
}

Status PreTokenizer::split(std::string_view text, RegexBudget& budget, Pieces& pieces) const {
  pieces.text = text;
  pieces.spans.assign(text.empty() ? 0 : 1, {0, text.size()});
  std::vector<TextSpan> next, matches;
  std::vector<Part> parts;
  const auto run = [&](const SplitStep& step) -> Status {
    next.clear();
    for (const TextSpan& span : pieces.spans) {
      const std::string_view part = pieces.text.substr(span.begin, span.end - span.begin);
      parts.clear();
      if (step.regex) {
        matches.clear();
        ESPALIER_TRY(step.regex->find_all(part, budget, matches));
        parts_of_matches(part, matches, step.invert, parts);
      } else {
        parts_of_digits(part, parts);
      }
      const size_t from = next.size();
      apply(step.behavior, parts, next);
      for (size_t i = from; i < next.size(); ++i) {
        next[i].begin += span.begin;
        next[i].end += span.begin;
      }
    }
    std::erase_if(next, [](const TextSpan& s) { return s.begin == s.end; });
    pieces.spans.swap(next);
    return {};
  };
  for (const SplitStep& step : steps_) ESPALIER_TRY(run(step));
  if (add_prefix_space_) {
    pieces.owned.clear();
    for (TextSpan& span : pieces.spans) {
      const size_t begin = pieces.owned.size();
      if (text[span.begin] != ' ') pieces.owned += ' ';
      pieces.owned += text.substr(span.begin, span.end - span.begin);
      span = {begin, pieces.owned.size()};
    }
    pieces.text = pieces.owned;
  }
  return byte_level_split_ ? run(*byte_level_split_) : Status();
}

}  // namespace espalier
