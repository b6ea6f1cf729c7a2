// `text % values` and text.format(...): the parts of Python's two format languages that templates use.
#include <charconv>
#include <cctype>
#include <cmath>

#include "text/jinja_eval.h"
#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

constexpr int kMaxWidth = 10000;

struct Spec {
  char fill = ' ', align = '\0', sign = '-', type = '\0';
  bool alternate = false, zero = false, comma = false;
  int width = 0, precision = -1;
};

int read_number(std::string_view text, size_t& at) {
  int v = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    v = v * 10 + (text[at++] - '0');
    if (v > kMaxWidth) fail("a format asks for a width of more than " + std::to_string(kMaxWidth));
  }
  return v;
}

MarkedText padded(const MarkedText& body, const Spec& s, char default_align) {
  const size_t length = count_code_points(body.text());
  const size_t width = static_cast<size_t>(s.width);
  if (length >= width) return body;
  const size_t room = width - length;
  const char align = s.align == '\0' ? default_align : s.align;
  const size_t left = align == '<' ? 0 : align == '^' ? room / 2 : room;
  MarkedText out(std::string(left, s.fill), Origin::data);
  out.append(body);
  out.append(std::string(room - left, s.fill), Origin::data);
  return out;
}

// Sign, then zeros up to the width (for `=` alignment and the 0 flag), then the digits.
MarkedText number(std::string digits, bool negative, const Spec& s, std::string_view prefix = {}) {
  if (s.comma) {
    const size_t point = digits.find_first_not_of("0123456789");
    for (size_t i = point == std::string::npos ? digits.size() : point; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  }
  std::string head = negative ? "-" : s.sign == '+' ? "+" : s.sign == ' ' ? " " : "";
  head += prefix;
  const size_t have = head.size() + digits.size();
  if ((s.zero || s.align == '=') && static_cast<size_t>(s.width) > have)
    digits.insert(0, static_cast<size_t>(s.width) - have, s.zero ? '0' : s.fill);
  return padded(MarkedText(head + digits, Origin::data), s, '>');
}

MarkedText integer(int64_t v, const Spec& s) {
  const uint64_t magnitude = v < 0 ? ~static_cast<uint64_t>(v) + 1 : static_cast<uint64_t>(v);
  const int base = s.type == 'x' || s.type == 'X' ? 16 : s.type == 'o' ? 8 : s.type == 'b' ? 2 : 10;
  char buffer[72];
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr);
  if (s.type == 'X')
    for (char& c : digits) c = c >= 'a' ? static_cast<char>(c - 32) : c;
  const std::string prefix = s.alternate && base != 10 ? std::string("0") + s.type : std::string();
  if (s.precision > static_cast<int>(digits.size()))
    digits.insert(0, static_cast<size_t>(s.precision) - digits.size(), '0');
  return number(std::move(digits), v < 0, s, prefix);
}

// printf's f, e and g without its locale.
std::string digits_of(double v, char type, int precision) {
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(type)));
  const auto format = lower == 'f' ? std::chars_format::fixed : lower == 'e' ? std::chars_format::scientific : std::chars_format::general;
  char buffer[1024];  // 309 digits before the point, at most 400 behind it
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof buffer, v, format, precision).ptr);
  if (type == 'E' || type == 'G')
    for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

MarkedText floating(double v, const Spec& s) {
  const double magnitude = std::fabs(v);
  const bool negative = std::signbit(v) && !std::isnan(v);
  const char type = s.type == '\0' ? 'g' : s.type == '%' ? 'f' : s.type;
  const double scaled = s.type == '%' ? magnitude * 100 : magnitude;
  if (!std::isfinite(scaled)) return number(std::isnan(scaled) ? "nan" : "inf", negative, s);
  std::string digits;
  if (s.type == '\0' && s.precision < 0) {
    digits = float_repr(scaled);
  } else {
    digits = digits_of(scaled, type, s.precision < 0 ? 6 : std::min(s.precision, 400));
  }
  if (s.type == '%') digits += '%';
  return number(std::move(digits), negative, s);
}

MarkedText cut(const MarkedText& text, int precision) {
  if (precision < 0) return text;
  return text.substr(0, offset_of(text.text(), static_cast<size_t>(precision)));
}

int64_t whole(const JinjaValue& v) {
  if (v.is_integral()) return v.as_int();
  if (v.is_double() && std::fabs(v.as_double()) < 9e18) return static_cast<int64_t>(v.as_double());
  fail("a number is required for the format, not " + type_name(v));
}

double real(const JinjaValue& v) {
  if (!v.is_number()) fail("must be real number, not " + type_name(v));
  return v.as_double();
}

MarkedText percent_field(const Spec& s, const JinjaValue& v) {
  if (v.is_undefined() && s.type != 's' && s.type != 'r') fail(v.as_undefined().hint);
  switch (s.type) {
    case 's': return padded(cut(to_str(v), s.precision), s, '>');
    case 'r': return padded(cut(to_repr(v), s.precision), s, '>');
    case 'd':
    case 'i':
    case 'u': return integer(whole(v), s);
    case 'x':
    case 'X':
    case 'o':
      if (!v.is_integral()) fail("an integer is required for the format, not " + type_name(v));
      return integer(v.as_int(), s);
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G': return floating(real(v), s);
    case 'c': {
      if (v.is_string()) return padded(v.marked(), s, '>');
      const int64_t code = whole(v);
      if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("%c needs a character");
      std::string c;
      append_utf8(static_cast<char32_t>(code), c);
      return padded(MarkedText(c, Origin::data), s, '>');
    }
    default: fail(std::string("unsupported format character '") + s.type + "'");
  }
}

// The values of a `%`: a tuple gives several, a mapping gives them by name.
class PercentValues {
 public:
  explicit PercentValues(const JinjaValue& v) : v_(v), tuple_(v.is_seq(Seq::Kind::tuple)) {}
  const JinjaValue& next() {
    if (tuple_ ? used_ >= v_.seq().items.size() : used_ > 0) fail("not enough arguments for format string");
    return tuple_ ? v_.seq().items[used_++] : (++used_, v_);
  }
  const JinjaValue& named(const MarkedText& key) {
    if (!v_.is_dict()) fail("format requires a mapping");
    by_name_ = true;
    const JinjaValue* found = find(v_.dict(), key.text());
    if (found == nullptr) fail("the format names '" + key.text() + "', which is not among its values");
    return *found;
  }
  void finish() const {
    const bool left = tuple_ ? used_ < v_.seq().items.size() : used_ == 0 && !by_name_ && !v_.is_dict() && !v_.is_seq();
    if (left) fail("not all arguments converted during string formatting");
  }

 private:
  const JinjaValue& v_;
  const bool tuple_;
  bool by_name_ = false;
  size_t used_ = 0;
};

Spec parse_spec(std::string_view text) {
  Spec s;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (text.size() > 1 && is_align(text[1])) {
    s.fill = text[0];
    s.align = text[1];
    at = 2;
  } else if (!text.empty() && is_align(text[0])) {
    s.align = text[0];
    at = 1;
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) s.sign = text[at++];
  if (at < text.size() && text[at] == '#') s.alternate = (++at, true);
  if (at < text.size() && text[at] == '0') s.zero = (++at, s.align == '\0');
  s.width = read_number(text, at);
  if (at < text.size() && text[at] == ',') s.comma = (++at, true);
  if (at < text.size() && text[at] == '.') {
    ++at;
    s.precision = read_number(text, at);
  }
  if (at < text.size()) s.type = text[at++];
  if (at != text.size()) fail("invalid format specifier '" + std::string(text) + "'");
  return s;
}

MarkedText brace_field(const JinjaValue& v, std::string_view spec) {
  if (spec.empty()) return to_str(v);
  const Spec s = parse_spec(spec);
  if (v.is_string()) {
    if (s.type != '\0' && s.type != 's') fail("unknown format code '" + std::string(1, s.type) + "' for a string");
    return padded(cut(v.marked(), s.precision), s, '<');
  }
  if (!v.is_number() || (v.is_bool() && s.type == '\0')) fail("unsupported format for " + type_name(v));
  const bool real_type = s.type == 'f' || s.type == 'F' || s.type == 'e' || s.type == 'E' || s.type == 'g' || s.type == 'G' || s.type == '%';
  if (v.is_double() || real_type) {
    if (s.type != '\0' && !real_type) fail("unknown format code '" + std::string(1, s.type) + "' for a float");
    return floating(v.as_double(), s);
  }
  if (s.type != '\0' && std::string_view("dxXob").find(s.type) == std::string_view::npos)
    fail("unknown format code '" + std::string(1, s.type) + "' for an int");
  return integer(v.as_int(), s);
}

}  // namespace

MarkedText percent_format(const MarkedText& format, const JinjaValue& args) {
  const std::string& f = format.text();
  PercentValues values(args);
  MarkedText out;
  size_t begin = 0;
  for (size_t at = f.find('%'); at != std::string::npos; at = f.find('%', begin)) {
    out.append(format.substr(begin, at - begin));
    ++at;
    Spec s;
    const JinjaValue* named = nullptr;
    if (at < f.size() && f[at] == '(') {
      const size_t close = f.find(')', at);
      if (close == std::string::npos) fail("incomplete format key");
      named = &values.named(format.substr(at + 1, close - at - 1));
      at = close + 1;
    }
    for (; at < f.size(); ++at) {
      if (f[at] == '-') s.align = '<';
      else if (f[at] == '0') s.zero = true;
      else if (f[at] == '+' || f[at] == ' ') s.sign = s.sign == '+' ? '+' : f[at];
      else if (f[at] == '#') s.alternate = true;
      else break;
    }
    if (s.align == '<') s.zero = false;
    s.width = read_number(f, at);
    if (at < f.size() && f[at] == '.') {
      ++at;
      s.precision = read_number(f, at);
    }
    if (at >= f.size()) fail("incomplete format");
    s.type = f[at];
    begin = at + 1;
    if (s.type == '%')
      out.append(format.substr(at, 1));
    else
      out.append(percent_field(s, named != nullptr ? *named : values.next()));
    if (out.size() > (size_t{64} << 20)) fail("a string is longer than 64 MiB");
  }
  out.append(format.substr(begin));
  values.finish();
  return out;
}

MarkedText brace_format(Evaluator& ev, const MarkedText& format, const Args& args) {
  const std::string& f = format.text();
  MarkedText out;
  size_t automatic = 0;
  for (size_t at = 0; at < f.size();) {
    const char c = f[at];
    if (c != '{' && c != '}') {
      const size_t end = std::min(f.find_first_of("{}", at), f.size());
      out.append(format.substr(at, end - at));
      at = end;
      continue;
    }
    if (at + 1 < f.size() && f[at + 1] == c) {
      out.append(format.substr(at, 1));
      at += 2;
      continue;
    }
    const size_t close = c == '{' ? f.find('}', at) : std::string::npos;
    if (close == std::string::npos) fail(std::string("single '") + c + "' encountered in format string");
    std::string_view field = std::string_view(f).substr(at + 1, close - at - 1);
    if (field.find('{') != std::string_view::npos) fail("nested format fields are not supported");
    at = close + 1;
    std::string_view spec;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    const size_t name_end = std::min(field.find_first_of(".["), field.size());
    const std::string name(field.substr(0, name_end));
    JinjaValue v;
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
      size_t index = automatic, p = 0;
      if (name.empty()) ++automatic;
      else index = static_cast<size_t>(read_number(name, p));
      if (index >= args.positional.size()) fail("replacement index " + std::to_string(index) + " out of range");
      v = args.positional[index];
    } else {
      bool found = false;
      for (const auto& [k, value] : args.named)
        if (k == name) {
          v = value;
          found = true;
        }
      if (!found) fail("the format names '" + name + "', which is not among its values");
    }
    if (name_end != field.size()) fail("attributes and subscripts in format fields are not supported");
    if (conversion == 'r') v = ev.string(to_repr(v));
    else if (conversion == 's') v = ev.string(to_str(v));
    else if (conversion != '\0') fail("unknown conversion in a format field");
    out.append(brace_field(v, spec));
    ev.charge(32);
    if (out.size() > (size_t{64} << 20)) fail("a string is longer than 64 MiB");
  }
  return out;
}

}  // namespace espalier::jinja
