#include "text/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

int deepest(const std::vector<JinjaValue>& items) {
  int depth = 0;
  for (const JinjaValue& v : items) depth = std::max(depth, v.depth());
  return depth;
}

int checked_depth(int inner) {
  if (inner + 1 > kMaxJinjaDepth) fail("a list or mapping is nested more than " + std::to_string(kMaxJinjaDepth) + " levels");
  return inner + 1;
}

bool is_list_like(const JinjaValue& v) { return v.is_seq() && v.seq().kind != Seq::Kind::generator; }

}  // namespace

void fail(std::string message) { throw JinjaFailure{std::move(message)}; }

JinjaValue JinjaValue::list(std::vector<JinjaValue> items, Seq::Kind kind) {
  auto s = std::make_shared<Seq>();
  s->kind = kind;
  s->depth = checked_depth(deepest(items));
  s->items = std::move(items);
  return SeqPtr(std::move(s));
}

JinjaValue JinjaValue::dict(std::vector<std::pair<JinjaValue, JinjaValue>> items) {
  auto d = std::make_shared<Dict>();
  int inner = 0;
  for (const auto& [k, v] : items) inner = std::max({inner, k.depth(), v.depth()});
  d->depth = checked_depth(inner);
  d->items = std::move(items);
  return DictPtr(std::move(d));
}

bool JinjaValue::same_object(const JinjaValue& other) const {
  if (v_.index() != other.v_.index()) return false;
  if (is_none()) return true;
  if (is_bool()) return as_bool() == other.as_bool();
  if (is_int()) return as_int() == other.as_int();
  if (is_string()) return &str() == &other.str();
  if (is_seq()) return &seq() == &other.seq();
  if (is_dict()) return &dict() == &other.dict();
  if (is_namespace()) return as_namespace() == other.as_namespace();
  if (is_macro()) return macro() == other.macro();
  return false;
}

std::string type_name(const JinjaValue& v) {
  if (v.is_none()) return "NoneType";
  if (v.is_bool()) return "bool";
  if (v.is_int()) return "int";
  if (v.is_double()) return "float";
  if (v.is_string()) return v.str().markup ? "Markup" : "str";
  if (v.is_dict()) return "dict";
  if (v.is_undefined()) return "Undefined";
  if (v.is_namespace()) return "Namespace";
  if (v.is_macro()) return "Macro";
  if (v.is_loop()) return "LoopContext";
  if (v.is_callable()) return "function";
  static constexpr const char* kNames[] = {"list", "tuple", "range", "generator", "dict_keys", "dict_values", "dict_items"};
  return kNames[static_cast<int>(v.seq().kind)];
}

bool truthy(const JinjaValue& v) {
  if (v.is_none() || v.is_undefined()) return false;
  if (v.is_bool()) return v.as_bool();
  if (v.is_int()) return v.as_int() != 0;
  if (v.is_double()) return v.as_double() != 0;
  if (v.is_string()) return !v.text().empty();
  if (v.is_seq()) return v.seq().kind == Seq::Kind::generator || !v.seq().items.empty();
  if (v.is_dict()) return !v.dict().items.empty();
  return true;
}

bool equals(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_double() || b.is_double()) return a.as_double() == b.as_double();
    return a.as_int() == b.as_int();
  }
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_none() && b.is_none()) return true;
  if (a.is_undefined() && b.is_undefined()) return true;
  if (is_list_like(a) && is_list_like(b)) {
    if (a.seq().kind != b.seq().kind || a.seq().items.size() != b.seq().items.size()) return false;
    return std::equal(a.seq().items.begin(), a.seq().items.end(), b.seq().items.begin(), equals);
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.dict().items.size() != b.dict().items.size()) return false;
    for (const auto& [k, v] : a.dict().items) {
      const JinjaValue* other = find(b.dict(), k);
      if (other == nullptr || !equals(v, *other)) return false;
    }
    return true;
  }
  return a.same_object(b);
}

int compare(const JinjaValue& a, const JinjaValue& b, const char* op) {
  if (a.is_number() && b.is_number()) {
    if (a.is_double() || b.is_double()) {
      const double x = a.as_double(), y = b.as_double();
      return x < y ? -1 : x == y ? 0 : 1;
    }
    return a.as_int() < b.as_int() ? -1 : a.as_int() == b.as_int() ? 0 : 1;
  }
  // Code-point order is byte order in UTF-8.
  if (a.is_string() && b.is_string()) return a.text().compare(b.text());
  const bool pair = (a.is_seq(Seq::Kind::list) && b.is_seq(Seq::Kind::list)) ||
                    (a.is_seq(Seq::Kind::tuple) && b.is_seq(Seq::Kind::tuple));
  if (pair) {
    const auto &x = a.seq().items, &y = b.seq().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equals(x[i], y[i])) return compare(x[i], y[i], op);
    return x.size() < y.size() ? -1 : x.size() == y.size() ? 0 : 1;
  }
  if (a.is_undefined()) fail(a.as_undefined().hint);
  if (b.is_undefined()) fail(b.as_undefined().hint);
  fail(std::string("'") + op + "' can't compare " + type_name(a) + " and " + type_name(b));
}

bool contains(const JinjaValue& container, const JinjaValue& item) {
  if (container.is_string()) {
    if (item.is_undefined()) fail(item.as_undefined().hint);
    if (!item.is_string()) fail("'in <string>' needs a string on the left, not " + type_name(item));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_dict()) {
    check_hashable(item);
    return find(container.dict(), item) != nullptr;
  }
  for (const JinjaValue& v : iterate(container))
    if (equals(v, item)) return true;
  return false;
}

std::vector<JinjaValue> iterate(const JinjaValue& v) {
  std::vector<JinjaValue> out;
  if (v.is_seq()) {
    if (v.seq().kind == Seq::Kind::generator) {
      if (v.seq().consumed) return out;
      v.seq().consumed = true;
    }
    return v.seq().items;
  }
  if (v.is_dict()) {
    for (const auto& entry : v.dict().items) out.push_back(entry.first);
    return out;
  }
  if (v.is_string()) {
    const std::vector<size_t> at = code_point_offsets(v.text());
    for (size_t i = 0; i + 1 < at.size(); ++i)
      out.emplace_back(v.marked().substr(at[i], at[i + 1] - at[i]), v.str().markup);
    return out;
  }
  if (v.is_undefined()) return out;
  fail(std::string("'") + type_name(v) + "' object is not iterable");
}

const JinjaValue* find(const Dict& dict, const JinjaValue& key) {
  if (key.is_string()) return find(dict, std::string_view(key.text()));
  for (const auto& [k, v] : dict.items)
    if (equals(k, key)) return &v;
  return nullptr;
}

const JinjaValue* find(const Dict& dict, std::string_view key) {
  for (const auto& [k, v] : dict.items)
    if (k.is_string() && k.text() == key) return &v;
  return nullptr;
}

void check_hashable(const JinjaValue& key) {
  if (key.is_dict() || key.is_seq(Seq::Kind::list)) fail("unhashable type: '" + type_name(key) + "'");
  if (key.is_seq(Seq::Kind::tuple))
    for (const JinjaValue& v : key.seq().items) check_hashable(v);
}

JinjaValue from_value(const Value& v) {
  if (v.is_null()) return {};
  if (v.is_bool()) return v.as_bool();
  if (v.is_int()) return v.as_int();
  if (v.is_double()) return v.as_double();
  if (v.is_string()) return JinjaValue::data(v.as_string());
  if (v.is_array()) {
    std::vector<JinjaValue> items;
    items.reserve(v.as_array().size());
    for (const Value& e : v.as_array()) items.push_back(from_value(e));
    return JinjaValue::list(std::move(items));
  }
  std::vector<std::pair<JinjaValue, JinjaValue>> items;
  items.reserve(v.as_object().size());
  for (const auto& [k, e] : v.as_object()) items.emplace_back(JinjaValue::data(k), from_value(e));
  return JinjaValue::dict(std::move(items));
}

// Python's shortest repr: exponent form below 1e-4 and from 1e16.
std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string_view all(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (all[0] == '-') {
    out = "-";
    all.remove_prefix(1);
  }
  const size_t e = all.find('e');
  std::string digits(all.substr(0, 1));
  if (e > 2) digits += all.substr(2, e - 2);
  int exponent = 0;
  const std::string_view exp_text = all.substr(e + (all[e + 1] == '+' ? 2 : 1));
  std::from_chars(exp_text.data(), exp_text.data() + exp_text.size(), exponent);
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) (out += '.').append(digits, 1);
    char tail[16];
    std::snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + tail;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." + digits.substr(static_cast<size_t>(exponent) + 1);
}

}  // namespace espalier::jinja
