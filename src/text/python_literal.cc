#include "text/python_literal.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "text/jinja_unicode.h"

namespace espalier {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80; }

class Reader {
 public:
  explicit Reader(std::string_view text) : s_(text) {}

  Status whole_value(Value& out) {
    ESPALIER_TRY(value(out, 0));
    skip_space();
    return at_ == s_.size() ? Status() : wrong("expected the end");
  }

  Status calls(std::vector<PythonCall>& out) {
    skip_space();
    const bool list = take('[');
    while (true) {
      skip_space();
      if (list ? take(']') : at_ == s_.size()) break;
      out.emplace_back();
      ESPALIER_TRY(call(out.back()));
      skip_blanks();
      const bool newline = !list && (peek() == '\n' || peek() == '\r');
      if (list) skip_space();
      if (take(',') || (!list && take(';')) || newline) continue;
      if (list ? peek() != ']' : at_ != s_.size()) return wrong(list ? "expected ',' or ']'" : "expected ',' or the end");
    }
    skip_space();
    if (at_ != s_.size()) return wrong("expected the end");
    return out.empty() ? wrong("expected a call") : Status();
  }

 private:
  Status wrong(const std::string& what) const { return corrupt("byte " + std::to_string(at_) + ": " + what); }
  char peek(size_t ahead = 0) const { return at_ + ahead < s_.size() ? s_[at_ + ahead] : '\0'; }
  bool take(char c) {
    if (at_ >= s_.size() || s_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  void skip_space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }
  std::string_view word(std::string_view also = {}) {
    const size_t begin = at_;
    while (at_ < s_.size() && (is_word(s_[at_]) || also.find(s_[at_]) != std::string_view::npos)) ++at_;
    return s_.substr(begin, at_ - begin);
  }

  Status call(PythonCall& out) {
    out.begin = at_;
    out.name = std::string(word(".-:/"));
    if (out.name.empty() || is_digit(out.name[0])) return wrong("expected the name of a tool");
    skip_blanks();
    if (!take('(')) return wrong("expected '('");
    while (true) {
      skip_space();
      if (take(')')) break;
      ESPALIER_TRY(argument(out));
      skip_space();
      if (!take(',') && peek() != ')') return wrong("expected ',' or ')'");
    }
    out.end = at_;
    return {};
  }

  Status argument(PythonCall& out) {
    if (peek() == '*' && peek(1) == '*') {
      at_ += 2;
      Value v;
      ESPALIER_TRY(value(v, 0));
      if (!v.is_object()) return wrong("expected a mapping behind '**'");
      for (auto& [k, member] : v.as_object()) ESPALIER_TRY(add_named(out, k, std::move(member)));
      return {};
    }
    const size_t begin = at_;
    const std::string name(word("-"));
    skip_space();
    Value v;
    if (!name.empty() && !is_digit(name[0]) && peek() == '=' && peek(1) != '=') {
      ++at_;
      ESPALIER_TRY(value(v, 0));
      return add_named(out, name, std::move(v));
    }
    at_ = begin;
    if (!out.named.empty()) return wrong("a positional argument follows a named one");
    ESPALIER_TRY(value(v, 0));
    out.positional.push_back(std::move(v));
    return {};
  }

  Status add_named(PythonCall& out, const std::string& name, Value v) {
    const bool twice = std::any_of(out.named.begin(), out.named.end(), [&](const Value::Member& m) { return m.first == name; });
    if (twice) return wrong("the argument '" + name + "' is given twice");
    out.named.emplace_back(name, std::move(v));
    return {};
  }

  Status value(Value& out, int depth) {
    if (depth > kMaxLiteralDepth) return wrong("values nested more than " + std::to_string(kMaxLiteralDepth) + " levels");
    skip_space();
    const char c = peek();
    if (string_ahead()) return strings(out);
    if (c == '[') return sequence(out, ']', depth);
    if (c == '(') return sequence(out, ')', depth);
    if (c == '{') return mapping(out, depth);
    if (is_digit(c) || c == '-' || c == '+' || c == '.') return number(out);
    const std::string_view name = word();
    if (name == "True" || name == "true") out = true;
    else if (name == "False" || name == "false") out = false;
    else if (name == "None" || name == "null") out = Value();
    else return wrong("expected a value");
    return {};
  }

  // A sequence in round brackets with one item and no comma is that item.
  Status sequence(Value& out, char close, int depth) {
    ++at_;
    out = Value::array();
    bool comma = false;
    while (true) {
      skip_space();
      if (take(close)) break;
      Value item;
      ESPALIER_TRY(value(item, depth + 1));
      out.push(std::move(item));
      skip_space();
      if (take(',')) comma = true;
      else if (peek() != close) return wrong(std::string("expected ',' or '") + close + "'");
    }
    if (close == ')' && out.as_array().size() == 1 && !comma) {
      Value only = std::move(out.as_array()[0]);
      out = std::move(only);
    }
    return {};
  }

  Status mapping(Value& out, int depth) {
    ++at_;
    out = Value::object();
    while (true) {
      skip_space();
      if (take('}')) return {};
      Value key, v;
      ESPALIER_TRY(value(key, depth + 1));
      skip_space();
      if (!take(':')) return wrong("expected ':'");
      ESPALIER_TRY(value(v, depth + 1));
      if (key.is_array() || key.is_object()) return wrong("a list can't be a key");
      if (out.as_object().size() > 10000) return wrong("a mapping of more than 10000 entries");
      out.set(key.is_string() ? key.as_string() : to_json(key), std::move(v));
      skip_space();
      if (!take(',') && peek() != '}') return wrong("expected ',' or '}'");
    }
  }

  Status number(Value& out) {
    const size_t begin = at_;
    std::string digits;
    if (peek() == '+' || peek() == '-') {
      if (peek() == '-') digits = "-";
      ++at_;
      skip_blanks();
    }
    if (peek() == '0' && (peek(1) == 'x' || peek(1) == 'X')) return hex_number(out, digits);
    while (at_ < s_.size()) {
      const char c = s_[at_];
      const bool exponent_sign = (c == '+' || c == '-') && !digits.empty() && (digits.back() == 'e' || digits.back() == 'E');
      if (is_digit(c) || c == '.' || c == 'e' || c == 'E' || exponent_sign) digits += c;
      else if (c != '_') break;
      ++at_;
    }
    if (digits.ends_with('.')) digits += '0';
    if (digits.starts_with('.')) digits.insert(0, 1, '0');
    if (digits.starts_with("-.")) digits.insert(1, 1, '0');
    const char* const end = digits.data() + digits.size();
    int64_t whole = 0;
    const auto i = std::from_chars(digits.data(), end, whole);
    if (i.ec == std::errc() && i.ptr == end) {
      out = whole;
      return {};
    }
    double real = 0;
    const auto d = std::from_chars(digits.data(), end, real);
    if (d.ec != std::errc() || d.ptr != end || !std::isfinite(real) || (at_ < s_.size() && is_word(s_[at_]))) {
      at_ = begin;
      return wrong("expected a number");
    }
    out = real;
    return {};
  }

  Status hex_number(Value& out, const std::string& sign) {
    at_ += 2;
    const std::string_view digits = word();
    uint64_t v = 0;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), v, 16);
    if (r.ec != std::errc() || r.ptr != digits.data() + digits.size() || v > uint64_t{INT64_MAX}) return wrong("expected a number");
    out = sign.empty() ? static_cast<int64_t>(v) : -static_cast<int64_t>(v);
    return {};
  }

  // A quote, or one of the prefixes r, u, b, f before it.
  bool string_ahead() const {
    const char c = peek();
    if (c == '\'' || c == '"') return true;
    const bool prefix = c == 'r' || c == 'R' || c == 'u' || c == 'U' || c == 'b' || c == 'B' || c == 'f' || c == 'F';
    return prefix && (peek(1) == '\'' || peek(1) == '"');
  }

  Status strings(Value& out) {
    std::string all;
    do {
      ESPALIER_TRY(one_string(all));
      const size_t after = at_;
      skip_space();
      if (!string_ahead()) {
        at_ = after;
        break;
      }
    } while (true);
    out = std::move(all);
    return {};
  }

  Status one_string(std::string& out) {
    bool raw = false;
    if (peek() != '\'' && peek() != '"') {
      raw = peek() == 'r' || peek() == 'R';
      ++at_;
    }
    const char quote = s_[at_++];
    const bool triple = peek() == quote && peek(1) == quote;
    if (triple) at_ += 2;
    while (at_ < s_.size()) {
      const char c = s_[at_];
      if (c == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        at_ += triple ? 3 : 1;
        return {};
      }
      ++at_;
      if (c != '\\') {
        out += c;
      } else if (raw) {
        out += c;
        if (at_ < s_.size()) out += s_[at_++];
      } else {
        ESPALIER_TRY(escape(out));
      }
    }
    return wrong("a string is not closed");
  }

  Status escape(std::string& out) {
    if (at_ >= s_.size()) return wrong("a string is not closed");
    const char c = s_[at_++];
    static constexpr std::string_view kFrom = "abfnrtv\\'\"/", kTo = "\a\b\f\n\r\t\v\\'\"/";
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      out += kTo[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      return hex_escape(c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    } else if (c >= '0' && c <= '7') {
      char32_t code = static_cast<char32_t>(c - '0');
      for (int k = 0; k < 2 && peek() >= '0' && peek() <= '7'; ++k) code = code * 8 + static_cast<char32_t>(s_[at_++] - '0');
      jinja::append_utf8(code, out);
    } else if (c != '\n') {
      out += '\\';
      out += c;
    }
    return {};
  }

  bool hex(size_t digits, char32_t& code) {
    if (s_.size() - at_ < digits) return false;
    uint32_t v = 0;
    const auto r = std::from_chars(s_.data() + at_, s_.data() + at_ + digits, v, 16);
    if (r.ec != std::errc() || r.ptr != s_.data() + at_ + digits) return false;
    at_ += digits;
    code = v;
    return true;
  }

  // A surrogate pair, as JSON writes characters beyond U+FFFF, is one character; a lone half is U+FFFD.
  Status hex_escape(size_t digits, std::string& out) {
    char32_t code = 0, low = 0;
    if (!hex(digits, code)) return wrong("expected " + std::to_string(digits) + " hexadecimal digits");
    if (code >= 0xd800 && code < 0xdc00 && peek() == '\\' && peek(1) == 'u') {
      const size_t before = at_;
      at_ += 2;
      if (hex(4, low) && low >= 0xdc00 && low < 0xe000) code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      else at_ = before;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = 0xfffd;
    jinja::append_utf8(code, out);
    return {};
  }

  std::string_view s_;
  size_t at_ = 0;
};

}  // namespace

Result<Value> parse_python_literal(std::string_view text) {
  Value out;
  ESPALIER_TRY(Reader(text).whole_value(out));
  return out;
}

Result<std::vector<PythonCall>> parse_python_calls(std::string_view text) {
  std::vector<PythonCall> out;
  ESPALIER_TRY(Reader(text).calls(out));
  return out;
}

}  // namespace espalier
