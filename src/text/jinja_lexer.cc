#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>

#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

[[noreturn]] void fail_at(int line, std::string message) { throw JinjaFailure{std::move(message), line}; }

bool starts(std::string_view text, size_t at, std::string_view what) { return text.substr(at, what.size()) == what; }

// \r\n and \r become \n, and one final line end goes, as jinja2 does with keep_trailing_newline off.
std::string normalise_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_name_start(unsigned char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80; }
bool is_name_char(unsigned char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : s_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) root();
    add(Token::Kind::end, {});
    return std::move(out_);
  }

 private:
  void root() {
    const size_t open = find_open();
    if (open == std::string::npos) {
      data(s_.substr(at_));
      at_ = s_.size();
      return;
    }
    const char kind = s_[open + 1];
    size_t after = open + 2;
    const char sign = after < s_.size() && (s_[after] == '-' || s_[after] == '+') ? s_[after++] : '\0';
    data(strip_before(open, sign, kind == '{'));
    move_to(open);
    if (kind == '#') {
      comment(after);
    } else if (kind == '{') {
      add(Token::Kind::variable_begin, {});
      move_to(after);
      expression(false);
    } else if (!raw(after)) {
      add(Token::Kind::block_begin, {});
      move_to(after);
      expression(true);
    }
    line_starting_ = at_ > 0 && s_[at_ - 1] == '\n';
  }

  size_t find_open() const {
    for (size_t i = s_.find('{', at_); i != std::string::npos; i = s_.find('{', i + 1))
      if (i + 1 < s_.size() && (s_[i + 1] == '{' || s_[i + 1] == '%' || s_[i + 1] == '#')) return i;
    return std::string::npos;
  }

  // The text before a tag, after `-` or lstrip_blocks took its share.
  std::string strip_before(size_t open, char sign, bool variable) const {
    std::string text = s_.substr(at_, open - at_);
    if (sign == '-') {
      text.resize(trim_space(text));
    } else if (sign != '+' && !variable) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == std::string::npos ? 0 : newline + 1;
      if ((start > 0 || line_starting_) && skip_space(std::string_view(text).substr(start)) == text.size() - start)
        text.resize(start);
    }
    return text;
  }

  void data(std::string text) {
    if (!text.empty()) add(Token::Kind::data, std::move(text));
  }
  void add(Token::Kind kind, std::string text) { out_.push_back({kind, line_, std::move(text)}); }
  void move_to(size_t to) {
    line_ += static_cast<int>(std::count(s_.begin() + static_cast<long>(at_), s_.begin() + static_cast<long>(to), '\n'));
    at_ = to;
  }
  size_t past_space(size_t at) const { return at + skip_space(std::string_view(s_).substr(at)); }
  // Past the newline that trim_blocks takes.
  size_t past_newline(size_t at) const { return at < s_.size() && s_[at] == '\n' ? at + 1 : at; }

  // If `close` (with an optional sign before it) stands at `at`: the offset after it and after the white space it takes.
  size_t closing(size_t at, std::string_view close, bool block) const {
    if (starts(s_, at, close)) return block ? past_newline(at + close.size()) : at + close.size();
    if (s_[at] == '-' && starts(s_, at + 1, close)) return past_space(at + 1 + close.size());
    if (block && s_[at] == '+' && starts(s_, at + 1, close)) return at + 1 + close.size();
    return 0;
  }

  void comment(size_t from) {
    if (from == s_.size()) return move_to(from);  // jinja2 misses the end only where something follows
    for (size_t i = from; i < s_.size(); ++i) {
      if (s_[i] != '#' && s_[i] != '-' && s_[i] != '+') continue;
      if (const size_t end = closing(i, "#}", true)) return move_to(end);
    }
    fail_at(line_, "a comment is not closed (expected '#}')");
  }

  // `{% raw %}`: true if that is what stood here; everything up to `{% endraw %}` is text.
  bool raw(size_t from) {
    size_t i = past_space(from);
    if (!starts(s_, i, "raw")) return false;
    i = past_space(i + 3);
    size_t body = 0;
    if (starts(s_, i, "%}")) body = i + 2;
    else if (starts(s_, i, "-%}")) body = past_space(i + 3);
    if (body == 0) return false;
    if (body == s_.size()) {
      move_to(body);
      return true;
    }
    const int start_line = line_;
    for (size_t open = s_.find("{%", body); open != std::string::npos; open = s_.find("{%", open + 1)) {
      size_t after = open + 2;
      const char sign = after < s_.size() && (s_[after] == '-' || s_[after] == '+') ? s_[after++] : '\0';
      size_t word = past_space(after);
      if (!starts(s_, word, "endraw")) continue;
      word = past_space(word + 6);
      const size_t end = word < s_.size() ? closing(word, "%}", true) : 0;
      if (end == 0) continue;
      move_to(body);
      line_starting_ = s_[body - 1] == '\n';
      data(strip_before(open, sign, false));
      move_to(end);
      return true;
    }
    fail_at(start_line, "a raw block is not closed (expected '{% endraw %}')");
  }

  void expression(bool block) {
    std::string brackets;
    const int start_line = line_;
    while (true) {
      move_to(past_space(at_));
      if (at_ >= s_.size())
        fail_at(start_line, block ? "a tag is not closed (expected '%}')" : "an expression is not closed (expected '}}')");
      if (brackets.empty()) {
        if (const size_t end = closing(at_, block ? "%}" : "}}", block)) {
          add(block ? Token::Kind::block_end : Token::Kind::variable_end, {});
          return move_to(end);
        }
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = s_[at_];
    if (c == '"' || c == '\'') return string(c);
    if (c >= '0' && c <= '9') return number();
    if (is_name_start(static_cast<unsigned char>(c))) {
      size_t end = at_;
      while (end < s_.size() && is_name_char(static_cast<unsigned char>(s_[end]))) ++end;
      add(Token::Kind::name, s_.substr(at_, end - at_));
      return move_to(end);
    }
    static constexpr std::string_view kOps[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (std::string_view op : kOps) {
      if (!starts(s_, at_, op)) continue;
      if (op == "(" || op == "[" || op == "{") brackets += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (brackets.empty()) fail_at(line_, "unexpected '" + std::string(op) + "'");
        if (brackets.back() != op[0])
          fail_at(line_, "unexpected '" + std::string(op) + "', expected '" + brackets.back() + "'");
        brackets.pop_back();
      }
      add(Token::Kind::op, std::string(op));
      return move_to(at_ + op.size());
    }
    fail_at(line_, "unexpected character '" + s_.substr(at_, decode_at(s_, at_).size) + "'");
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) fail_at(line_, "a string is not closed");
    add(Token::Kind::string, unescape(std::string_view(s_).substr(at_ + 1, end - at_ - 1)));
    move_to(end + 1);
  }

  std::string unescape(std::string_view in) const {
    std::string out;
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] != '\\') {
        out += in[i];
        continue;
      }
      const char c = in[++i];  // string() took the backslash and what follows it together
      static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
      const size_t simple = kFrom.find(c);
      if (simple != std::string_view::npos) out += kTo[simple];
      else if (c == '\n') continue;
      else if (c == 'x') i = hex_escape(in, i, 2, out);
      else if (c == 'u') i = hex_escape(in, i, 4, out);
      else if (c == 'U') i = hex_escape(in, i, 8, out);
      else if (c >= '0' && c <= '7') i = octal_escape(in, i, out);
      else if (c == 'N') fail_at(line_, "a string names a character (\\N{...}), which is not supported; write the character");
      else out.append({'\\', c});
    }
    return out;
  }

  size_t hex_escape(std::string_view in, size_t at, size_t digits, std::string& out) const {
    char32_t code = 0;
    for (size_t k = 1; k <= digits; ++k) {
      const int d = at + k < in.size() ? hex_digit(in[at + k]) : -1;
      if (d < 0) fail_at(line_, "a string has an incomplete \\" + std::string(1, in[at]) + " escape");
      code = code * 16 + static_cast<char32_t>(d);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail_at(line_, "a string escape is no character");
    append_utf8(code, out);
    return at + digits;
  }

  static size_t octal_escape(std::string_view in, size_t at, std::string& out) {
    char32_t code = 0;
    size_t k = at;
    for (; k < in.size() && k < at + 3 && in[k] >= '0' && in[k] <= '7'; ++k) code = code * 8 + static_cast<char32_t>(in[k] - '0');
    append_utf8(code, out);
    return k - 1;
  }

  // Digits with single underscores between them, from `at`.
  size_t digits_end(size_t at) const {
    size_t end = at;
    while (end < s_.size() && ((s_[end] >= '0' && s_[end] <= '9') ||
                               (s_[end] == '_' && end > at && end + 1 < s_.size() && s_[end + 1] >= '0' && s_[end + 1] <= '9')))
      ++end;
    return end;
  }
  bool digit_at(size_t at) const { return at < s_.size() && s_[at] >= '0' && s_[at] <= '9'; }

  void number() {
    const char second = at_ + 1 < s_.size() ? static_cast<char>(s_[at_ + 1] | 0x20) : '\0';
    if (s_[at_] == '0' && (second == 'x' || second == 'b' || second == 'o')) return based_integer(second);
    size_t end = digits_end(at_);
    bool floating = false;
    if (end < s_.size() && s_[end] == '.' && digit_at(end + 1)) {
      floating = true;
      end = digits_end(end + 1);
    }
    if (end < s_.size() && (s_[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < s_.size() && (s_[end + 1] == '+' || s_[end + 1] == '-') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        floating = true;
        end = digits_end(end + 1 + sign);
      }
    }
    std::string text = s_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Token t{floating ? Token::Kind::floating : Token::Kind::integer, line_, {}};
    if (floating) {
      if (std::from_chars(text.data(), text.data() + text.size(), t.floating).ec != std::errc{})
        fail_at(line_, "the number " + text + " is out of range");
    } else {
      if (text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
        fail_at(line_, "a number may not start with 0");
      if (std::from_chars(text.data(), text.data() + text.size(), t.integer).ec != std::errc{})
        fail_at(line_, "the number " + text + " is larger than 64 bits");
    }
    out_.push_back(std::move(t));
    move_to(end);
  }

  void based_integer(char base) {
    size_t end = at_ + 2;
    std::string text;
    while (end < s_.size() && (hex_digit(s_[end]) >= 0 || s_[end] == '_')) {
      if (s_[end] != '_') text += s_[end];
      ++end;
    }
    Token t{Token::Kind::integer, line_, {}};
    const auto [p, ec] =
        std::from_chars(text.data(), text.data() + text.size(), t.integer, base == 'x' ? 16 : base == 'o' ? 8 : 2);
    if (ec != std::errc{} || p != text.data() + text.size()) fail_at(line_, "a number is not well formed");
    out_.push_back(std::move(t));
    move_to(end);
  }

  std::string s_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> out_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) {
  for (size_t at = 0; at < source.size();) {
    const CodePoint c = decode_at(source, at);
    if (c.size == 1 && static_cast<unsigned char>(source[at]) >= 0x80)
      fail_at(1 + static_cast<int>(std::count(source.begin(), source.begin() + static_cast<long>(at), '\n')),
              "the template is not valid UTF-8");
    at += c.size;
  }
  return Lexer(normalise_lines(source)).run();
}

}  // namespace espalier::jinja
