// Characters of UTF-8 strings, as Python's str sees them: case, white space, printability.
// The tables are made by tools/oracle/chat_unicode_table.py. A byte that is not valid UTF-8 counts as one character.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/marked_text.h"

namespace espalier::jinja {

struct CodePoint {
  char32_t value;  // 0xFFFD for a stray byte
  size_t begin, size;
};
// The character that starts at `at`. Requires: at < text.size().
CodePoint decode_at(std::string_view text, size_t at);
// The character that ends at `end`. Requires: 0 < end <= text.size().
CodePoint decode_before(std::string_view text, size_t end);
void append_utf8(char32_t c, std::string& out);
size_t count_code_points(std::string_view text);
// Byte offset of the n-th character; text.size() beyond the end.
size_t offset_of(std::string_view text, size_t n);
// Offsets of all characters, and text.size().
std::vector<size_t> code_point_offsets(std::string_view text);

bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_cased(char32_t c);
bool is_digit(char32_t c);
bool is_alpha(char32_t c);

enum class Case { lower, upper, title };
// Each output character takes the origin of the one it came from.
MarkedText map_case(const MarkedText& text, Case mode);
// str.capitalize, str.title, str.swapcase.
MarkedText capitalize(const MarkedText& text);
MarkedText title_words(const MarkedText& text);
MarkedText swap_case(const MarkedText& text);
// First offset that is no white space, and one past the last.
size_t skip_space(std::string_view text);
size_t trim_space(std::string_view text);

}  // namespace espalier::jinja
