#include "engine/call_syntax.h"

#include <charconv>
#include <cmath>

#include "base/json.h"

namespace espalier {
namespace {

constexpr int kDepthMax = 64;

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

void append_code_point(uint32_t c, std::string& out) {
  if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) c = 0xfffd;
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  if (c >= 0x10000) out += static_cast<char>(0xf0 | c >> 18);
  if (c >= 0x800) out += static_cast<char>(c >= 0x10000 ? 0x80 | (c >> 12 & 0x3f) : 0xe0 | c >> 12);
  out += static_cast<char>(c >= 0x800 ? 0x80 | (c >> 6 & 0x3f) : 0xc0 | c >> 6);
  out += static_cast<char>(0x80 | (c & 0x3f));
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::vector<WrittenCall>> calls() {
    std::vector<WrittenCall> out;
    skip_space();
    const bool list = take('[');
    do {
      skip_space();
      if (list && peek() == ']') break;  // a comma before the end
      WrittenCall call;
      ESPALIER_TRY(one_call(call));
      out.push_back(std::move(call));
      skip_space();
    } while (take(','));
    if (list && !take(']')) return wrong("expected , or ]");
    skip_space();
    if (at_ != text_.size()) return wrong("expected the end");
    if (out.empty()) return wrong("expected a call");
    return out;
  }

 private:
  Status wrong(const std::string& what) const { return corrupt("call, byte " + std::to_string(at_) + ": " + what); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }
  std::string_view word(std::string_view also) {
    const size_t begin = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || also.find(text_[at_]) != std::string_view::npos)) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Status one_call(WrittenCall& call) {
    if (peek() == '{') return json_call(call);
    call.name = std::string(word(".-"));
    if (call.name.empty() || (call.name[0] >= '0' && call.name[0] <= '9')) return wrong("expected the name of a tool");
    call.arguments = Value::object();
    skip_space();
    if (!take('(')) return wrong("expected (");
    for (;;) {
      skip_space();
      if (take(')')) return {};
      const std::string key(word(""));
      skip_space();
      if (key.empty() || !take('=')) return wrong("expected an argument as name=value");
      if (call.arguments.find(key) != nullptr) return wrong("argument " + key + " is given twice");
      Value v;
      ESPALIER_TRY(value(v, 0));
      call.arguments.set(key, std::move(v));
      skip_space();
      if (!take(',') && peek() != ')') return wrong("expected , or )");
    }
  }

  Status json_call(WrittenCall& call) {
    Value v;
    ESPALIER_TRY(value(v, 0));
    const Value* name = v.find("name");
    const Value* arguments = v.find("arguments");
    if (arguments == nullptr) arguments = v.find("parameters");
    if (name == nullptr || !name->is_string()) return wrong("expected \"name\"");
    call.name = name->as_string();
    call.arguments = arguments == nullptr || arguments->is_null() ? Value::object() : *arguments;
    return call.arguments.is_object() ? Status() : wrong("expected \"arguments\" to be an object");
  }

  Status value(Value& out, int depth) {
    if (depth > kDepthMax) return wrong("values are nested too deeply");
    skip_space();
    switch (peek()) {
      case '"':
      case '\'': return string(out);
      case '[': return sequence(out, ']', depth);
      case '(': return sequence(out, ')', depth);
      case '{': return mapping(out, depth);
      default: return is_word(peek()) && !(peek() >= '0' && peek() <= '9') ? constant(out) : number(out);
    }
  }

  Status constant(Value& out) {
    const std::string_view name = word("");
    if (name == "True" || name == "true") out = true;
    else if (name == "False" || name == "false") out = false;
    else if (name == "None" || name == "null") out = Value();
    else return wrong("expected a value, found " + std::string(name.substr(0, 40)));
    return {};
  }

  Status number(Value& out) {
    const size_t begin = at_;
    if (peek() == '+') ++at_;
    const std::string_view rest = text_.substr(at_);
    int64_t whole = 0;
    const auto i = std::from_chars(rest.data(), rest.data() + rest.size(), whole);
    double real = 0;
    const auto d = std::from_chars(rest.data(), rest.data() + rest.size(), real);
    if (d.ec != std::errc() || !std::isfinite(real)) {
      at_ = begin;
      return wrong("expected a value");
    }
    at_ += static_cast<size_t>(d.ptr - rest.data());
    out = i.ec == std::errc() && i.ptr == d.ptr ? Value(whole) : Value(real);
    return {};
  }

  Status sequence(Value& out, char end, int depth) {
    ++at_;
    out = Value::array();
    for (;;) {
      skip_space();
      if (take(end)) return {};
      Value v;
      ESPALIER_TRY(value(v, depth + 1));
      out.push(std::move(v));
      skip_space();
      if (!take(',') && peek() != end) return wrong(std::string("expected , or ") + end);
    }
  }

  Status mapping(Value& out, int depth) {
    ++at_;
    out = Value::object();
    for (;;) {
      skip_space();
      if (take('}')) return {};
      Value key, v;
      if (peek() != '"' && peek() != '\'') return wrong("expected a key in quotes");
      ESPALIER_TRY(string(key));
      skip_space();
      if (!take(':')) return wrong("expected :");
      ESPALIER_TRY(value(v, depth + 1));
      out.set(key.as_string(), std::move(v));
      skip_space();
      if (!take(',') && peek() != '}') return wrong("expected , or }");
    }
  }

  Status string(Value& out) {
    const char quote = text_[at_++];
    const bool triple = text_.substr(at_).starts_with(std::string(2, quote));
    if (triple && text_.substr(at_ + 2).find(std::string(3, quote)) == std::string_view::npos) {
      at_ += 1;  // an empty string
      out = "";
      return {};
    }
    if (triple) at_ += 2;
    std::string s;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == quote && (!triple || text_.substr(at_).starts_with(std::string(2, quote)))) {
        if (triple) at_ += 2;
        out = std::move(s);
        return {};
      }
      if (c != '\\') s += c;
      else ESPALIER_TRY(escape(s));
    }
    return wrong("a string has no end");
  }

  Status escape(std::string& s) {
    if (at_ == text_.size()) return wrong("a string has no end");
    const char c = text_[at_++];
    switch (c) {
      case 'n': s += '\n'; return {};
      case 't': s += '\t'; return {};
      case 'r': s += '\r'; return {};
      case 'b': s += '\b'; return {};
      case 'f': s += '\f'; return {};
      case 'v': s += '\v'; return {};
      case 'a': s += '\a'; return {};
      case '\n': return {};
      case 'x': return hex(2, s);
      case 'u': return hex(4, s);
      case 'U': return hex(8, s);
      case '\\': case '\'': case '"': case '/': s += c; return {};
      default: break;
    }
    if (c == '0') s += '\0';
    else (s += '\\') += c;  // as Python keeps an escape that it doesn't know
    return {};
  }

  Status hex(size_t digits, std::string& s) {
    const auto read = [&](size_t n, uint32_t& code) {
      if (text_.size() - at_ < n) return false;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + n, code, 16);
      if (error != std::errc() || end != text_.data() + at_ + n) return false;
      at_ += n;
      return true;
    };
    uint32_t code = 0, low = 0;
    if (!read(digits, code)) return wrong("expected " + std::to_string(digits) + " hex digits");
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_).starts_with("\\u")) {  // a pair, as JSON writes it
      const size_t before = at_;
      at_ += 2;
      if (read(4, low) && low >= 0xdc00 && low < 0xe000) code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      else at_ = before;
    }
    append_code_point(code, s);
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<WrittenCall>> parse_calls(std::string_view text) { return Reader(text).calls(); }

bool is_offered(const Value& tools, const WrittenCall& call) {
  if (!tools.is_array()) return false;
  for (const Value& tool : tools.as_array()) {
    const Value* function = tool.find("function") != nullptr ? tool.find("function") : &tool;
    const Value* name = function->find("name");
    if (name == nullptr || !name->is_string() || name->as_string() != call.name) continue;
    const Value* parameters = function->find("parameters");
    const Value* more = parameters == nullptr ? nullptr : parameters->find("additionalProperties");
    if (more != nullptr && !(more->is_bool() && !more->as_bool())) return true;
    const Value* properties = parameters == nullptr ? nullptr : parameters->find("properties");
    for (const auto& [key, value] : call.arguments.as_object())
      if (properties == nullptr || properties->find(key) == nullptr) return false;
    return true;
  }
  return false;
}

}  // namespace espalier
