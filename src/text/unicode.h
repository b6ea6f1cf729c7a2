// What the reference tokenizer library holds of Unicode: one table in the tree (unicode_table.inc, made by
// tools/unicode/make_table.py), so that every machine splits text alike whatever its system libraries know.
//
// All functions are pure and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

inline constexpr uint32_t kLastCodePoint = 0x10ffff;

struct CodeRange {
  uint32_t first, last;  // both inside
  bool operator==(const CodeRange&) const = default;
};

// A set of code points: ascending ranges that neither overlap nor touch.
class CodeSet {
 public:
  CodeSet() = default;
  explicit CodeSet(std::vector<CodeRange> any_order);
  static CodeSet single(uint32_t code) { return CodeSet({{code, code}}); }

  bool contains(uint32_t code) const;
  CodeSet united(const CodeSet& other) const;
  CodeSet inverted() const;  // within 0 .. kLastCodePoint
  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool operator==(const CodeSet&) const = default;

 private:
  std::vector<CodeRange> ranges_;
};

// The set that \p{name} means in a split regex: general categories, short or long, and Han. Case, blanks, '_' and '-' do
// not matter. Nothing for a name that the table does not hold.
std::optional<CodeSet> unicode_property(std::string_view name);
CodeSet regex_space();  // \s
CodeSet regex_word();   // \w
CodeSet regex_digit();  // \d

bool is_numeric(uint32_t code);            // what the Digits pre-tokenizer isolates
bool is_added_token_space(uint32_t code);  // what lstrip and rstrip of an added token eat
bool is_added_token_word(uint32_t code);   // what must not touch a single_word token

struct Utf8Sequence {
  size_t length;  // bytes that belong together, at least 1
  enum Kind { valid, invalid, unfinished } kind;
};
// The sequence that starts at text[0]: a character, a maximal ill-formed part, or a good begin that the text ends in.
// Requires: text is not empty.
Utf8Sequence first_utf8_sequence(std::string_view text);

// The offset of the first byte that is not part of valid UTF-8 (no surrogates, nothing overlong), or npos.
size_t find_invalid_utf8(std::string_view text);

// The code point at `position`, which moves behind it. Requires: valid UTF-8, position < size.
inline uint32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(position);
  if (lead < 0x80) {
    position += 1;
    return lead;
  }
  if (lead < 0xe0) {
    position += 2;
    return (lead & 0x1f) << 6 | (byte(position - 1) & 0x3f);
  }
  if (lead < 0xf0) {
    position += 3;
    return (lead & 0x0f) << 12 | (byte(position - 2) & 0x3f) << 6 | (byte(position - 1) & 0x3f);
  }
  position += 4;
  return (lead & 0x07) << 18 | (byte(position - 3) & 0x3f) << 12 | (byte(position - 2) & 0x3f) << 6 |
         (byte(position - 1) & 0x3f);
}

// The code point that ends before `position`. Requires: valid UTF-8, position > 0.
uint32_t code_point_before(std::string_view text, size_t position);

// Appends the UTF-8 form. Requires: code is a scalar value.
void append_utf8(uint32_t code, std::string& out);

}  // namespace espalier
