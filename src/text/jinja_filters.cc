// The filters of transformers' environment that chat templates use.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "text/jinja_eval.h"
#include "text/jinja_sort.h"
#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

using Fn = JinjaValue (*)(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args);

bool keeps_markup(const JinjaValue& v) { return v.is_string() && v.str().markup; }

[[noreturn]] void not_iterable(const std::string& name, const JinjaValue& v) {
  fail("the filter '" + name + "' needs something to iterate over, found " + type_name(v));
}

std::vector<JinjaValue> items_of(Evaluator& ev, const std::string& name, const JinjaValue& v) {
  if (!v.is_seq() && !v.is_dict() && !v.is_string() && !v.is_undefined()) not_iterable(name, v);
  return ev.iterate_charged(v);
}

// "a.b.0" looked up step by step.
JinjaValue path(Evaluator& ev, const JinjaValue& v, const JinjaValue& where) {
  if (!where.is_string()) return ev.item(v, where);
  JinjaValue at = v;
  std::string_view rest = where.text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number && part.size() < 18)
      at = ev.item(at, int64_t{std::strtoll(std::string(part).c_str(), nullptr, 10)});
    else
      at = ev.item(at, JinjaValue::control(part));
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

JinjaValue sort_key(Evaluator& ev, const JinjaValue& v, bool case_sensitive) {
  if (case_sensitive || !v.is_string()) return v;
  return ev.string(map_case(v.marked(), Case::lower));
}

JinjaValue sorted_item(Evaluator& ev, const JinjaValue& v, const JinjaValue* attribute, bool case_sensitive) {
  const bool by_attribute = attribute != nullptr && !attribute->is_none();
  return sort_key(ev, by_attribute ? path(ev, v, *attribute) : v, case_sensitive);
}

std::vector<size_t> order_by(Evaluator& ev, const std::vector<JinjaValue>& keys, bool reverse) {
  const auto less = [&](size_t a, size_t b) {
    ev.step();
    return reverse ? compare(keys[b], keys[a], "<") < 0 : compare(keys[a], keys[b], "<") < 0;
  };
  return stable_order(keys.size(), less);
}

// ---- text

JinjaValue case_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  const MarkedText text = to_str(in);
  if (name == "capitalize") return ev.string(capitalize(text), keeps_markup(in));
  return ev.string(map_case(text, name == "upper" ? Case::upper : Case::lower), keeps_markup(in));
}

// jinja2's own title: words begin after space, - ( { [ and <.
JinjaValue title_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  const MarkedText text = to_str(in);
  const std::string_view s = text.text();
  MarkedText out;
  bool in_word = false;
  for (size_t at = 0; at < s.size();) {
    size_t end = at;
    bool separator = false;
    while (end < s.size()) {
      const CodePoint c = decode_at(s, end);
      separator = is_space(c.value) || std::u32string_view(U"-({[<").find(c.value) != std::u32string_view::npos;
      if (separator || (!in_word && end > at)) break;
      end += c.size;
    }
    if (end > at) {
      out.append(map_case(text.substr(at, end - at), in_word ? Case::lower : Case::upper));
      in_word = true;
      at = end;
    }
    if (separator && at < s.size()) {
      const size_t size = decode_at(s, at).size;
      out.append(text.substr(at, size));
      at += size;
      in_word = false;
    }
    ev.step(1 + text.runs().size() / 8);
  }
  return ev.string(std::move(out), keeps_markup(in));
}

JinjaValue trim_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"chars"});
  return ev.string(strip(to_str(in), b.get(0), true, true), keeps_markup(in));
}

JinjaValue replace_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"old", "new", "count"});
  const bool all = b.get(2) == nullptr || b.get(2)->is_none();
  return ev.string(replace(ev, to_str(in), to_str(b.need(0)), to_str(b.need(1)), all ? -1 : b.integer(2, -1)));
}

JinjaValue string_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  return in.is_string() ? in : ev.string(to_str(in));
}

JinjaValue safe_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  return ev.string(to_str(in), true);
}

JinjaValue escape_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  if (keeps_markup(in) && name != "forceescape") return in;
  return ev.string(escape_html(to_str(in)), true);
}

JinjaValue indent_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"width", "first", "blank"});
  const JinjaValue* width = b.get(0);
  if (!in.is_string()) fail("the filter 'indent' needs a string, found " + type_name(in));
  const MarkedText pad = width != nullptr && width->is_string() ? width->marked()
                                                               : repeat(ev, MarkedText(" ", Origin::data), b.integer(0, 4));
  MarkedText source = in.marked();
  source.append("\n", Origin::data);
  ev.step(source.size() / 8 * (1 + source.runs().size() / 8));
  const std::vector<MarkedText> lines = split_lines(source);
  MarkedText out;
  if (b.flag(1, false)) out.append(pad);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) {
      out.append("\n", Origin::data);
      if (b.flag(2, false) || !lines[i].empty()) out.append(pad);
    }
    ev.charge(pad.size() + lines[i].size() + 1);
    out.append(lines[i]);
  }
  return ev.string(std::move(out), in.str().markup);
}

JinjaValue center_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"width"});
  Args width;
  width.positional.emplace_back(b.integer(0, 80));
  return call_method(ev, ev.string(to_str(in), keeps_markup(in)), "center", width);
}

JinjaValue format_filter(Evaluator& ev, const std::string&, const JinjaValue& in, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) fail("format: either positional or keyword arguments, not both");
  JinjaValue values;
  if (args.named.empty()) {
    values = ev.list(args.positional, Seq::Kind::tuple);
  } else {
    std::vector<std::pair<JinjaValue, JinjaValue>> items;
    for (const auto& [k, v] : args.named) items.emplace_back(JinjaValue::control(k), v);
    values = JinjaValue::dict(std::move(items));
  }
  return ev.string(percent_format(to_str(in), values), keeps_markup(in));
}

JinjaValue wordcount_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  const MarkedText text = to_str(in);
  ev.step(text.size() / 8);
  int64_t n = 0;
  bool word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text.text(), at);
    const bool now = is_alpha(c.value) || is_digit(c.value) || c.value == '_';
    n += now && !word ? 1 : 0;
    word = now;
    at += c.size;
  }
  return n;
}

JinjaValue tojson_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions o;
  o.ensure_ascii = b.flag(0, false);
  o.sort_keys = b.flag(3, false);
  const JinjaValue* indent = b.get(1);
  o.has_indent = indent != nullptr && !indent->is_none();
  if (o.has_indent && indent->is_string()) o.indent = indent->text();
  else if (o.has_indent) o.indent.assign(static_cast<size_t>(std::clamp<int64_t>(b.integer(1, 0), 0, 64)), ' ');
  o.item_separator = o.has_indent ? "," : ", ";
  o.key_separator = ": ";
  if (const JinjaValue* s = b.get(2); s != nullptr && !s->is_none()) {
    const bool pair = s->is_seq() && s->seq().items.size() == 2 && s->seq().items[0].is_string() && s->seq().items[1].is_string();
    if (!pair) fail("tojson: 'separators' must be two strings");
    o.item_separator = s->seq().items[0].text();
    o.key_separator = s->seq().items[1].text();
  }
  return ev.string(to_json_text(in, o));
}

// ---- numbers

JinjaValue int_filter(Evaluator&, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"default", "base"});
  const JinjaValue otherwise = b.get(0) != nullptr ? *b.get(0) : JinjaValue(0);
  if (in.is_undefined()) fail(in.as_undefined().hint);
  if (in.is_integral()) return in.as_int();
  const auto truncated = [&](double d) -> JinjaValue {
    if (!std::isfinite(d) || std::fabs(d) >= 9.2e18) return otherwise;
    return static_cast<int64_t>(d);
  };
  if (in.is_double()) return truncated(in.as_double());
  if (!in.is_string()) return otherwise;
  const MarkedText stripped = strip(in.marked(), nullptr, true, true);
  std::string digits;
  const std::string& raw = stripped.text();
  const auto digit = [&](size_t i) { return i < raw.size() && raw[i] >= '0' && raw[i] <= '9'; };
  for (size_t i = 0; i < raw.size(); ++i)
    if (raw[i] != '_' || i == 0 || !digit(i - 1) || !digit(i + 1)) digits += raw[i];
  std::string_view s = digits;
  const bool plus = !s.empty() && s[0] == '+';
  if (plus) s.remove_prefix(1);
  int64_t v = 0;
  const int64_t base = b.integer(1, 10);
  if (base < 2 || base > 36) fail("int: base must be between 2 and 36");
  const auto whole = std::from_chars(s.data(), s.data() + s.size(), v, static_cast<int>(base));
  if (whole.ec == std::errc{} && whole.ptr == s.data() + s.size()) return v;
  double d = 0;
  const auto real = std::from_chars(s.data(), s.data() + s.size(), d);
  if (!s.empty() && real.ec == std::errc{} && real.ptr == s.data() + s.size()) return truncated(d);
  return otherwise;
}

JinjaValue float_filter(Evaluator&, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"default"});
  if (in.is_undefined()) fail(in.as_undefined().hint);
  if (in.is_number()) return in.as_double();
  if (in.is_string()) {
    const MarkedText stripped = strip(in.marked(), nullptr, true, true);
    const std::string& s = stripped.text();
    const size_t skip = !s.empty() && s[0] == '+' ? 1 : 0;
    double d = 0;
    const auto real = std::from_chars(s.data() + skip, s.data() + s.size(), d);
    if (s.size() > skip && real.ec == std::errc{} && real.ptr == s.data() + s.size()) return d;
  }
  return b.get(0) != nullptr ? *b.get(0) : JinjaValue(0.0);
}

JinjaValue abs_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  if (in.is_undefined()) fail(in.as_undefined().hint);
  if (in.is_double()) return std::fabs(in.as_double());
  if (!in.is_integral()) fail("abs needs a number, found " + type_name(in));
  return in.as_int() < 0 ? binary(ev, Expr::Kind::negate, in, {}) : JinjaValue(in.as_int());
}

JinjaValue round_filter(Evaluator&, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"precision", "method"});
  if (in.is_undefined()) fail(in.as_undefined().hint);
  if (!in.is_number()) fail("round needs a number, found " + type_name(in));
  const int precision = static_cast<int>(std::clamp<int64_t>(b.integer(0, 0), -30, 30));
  const std::string method = b.get(1) != nullptr && b.get(1)->is_string() ? b.get(1)->text() : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("round: method must be common, ceil or floor");
  if (method != "common") {
    const double scale = std::pow(10.0, precision);
    const double v = in.as_double() * scale;
    return (method == "ceil" ? std::ceil(v) : std::floor(v)) / scale;
  }
  if (in.is_integral() && precision >= 0) return in.as_int();
  const double d = in.as_double();
  if (!std::isfinite(d)) return d;
  if (precision < 0) {
    const double scale = std::pow(10.0, -precision);
    const double r = std::nearbyint(d / scale) * scale;
    if (in.is_integral()) return static_cast<int64_t>(r);
    return r;
  }
  char text[400];  // correctly rounded from the exact value, as Python's round()
  double rounded = d;
  const auto end = std::to_chars(text, text + sizeof text, d, std::chars_format::fixed, precision);
  if (end.ec == std::errc()) std::from_chars(text, end.ptr, rounded);
  return rounded;
}

JinjaValue sum_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"attribute", "start"});
  JinjaValue total = b.get(1) != nullptr ? *b.get(1) : JinjaValue(0);
  const bool by_attribute = b.get(0) != nullptr && !b.get(0)->is_none();
  for (const JinjaValue& v : items_of(ev, name, in))
    total = binary(ev, Expr::Kind::add, total, by_attribute ? path(ev, v, *b.get(0)) : v);
  return total;
}

// ---- sequences

JinjaValue length_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  if (in.is_undefined()) return 0;
  if (in.is_string()) {
    ev.step(in.text().size() / 64);
    return static_cast<int64_t>(count_code_points(in.text()));
  }
  if (in.is_seq() && in.seq().kind != Seq::Kind::generator) return static_cast<int64_t>(in.seq().items.size());
  if (in.is_dict()) return static_cast<int64_t>(in.dict().items.size());
  if (in.is_loop()) return static_cast<int64_t>(in.loop()->count);
  fail("object of type '" + type_name(in) + "' has no len()");
}

JinjaValue default_filter(Evaluator&, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"default_value", "boolean"});
  if (in.is_undefined() || (b.flag(1, false) && !truthy(in)))
    return b.get(0) != nullptr ? *b.get(0) : JinjaValue::control("");
  return in;
}

JinjaValue first_last_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  if (name == "last" && (in.is_seq(Seq::Kind::generator))) fail("'generator' object is not reversible");
  const std::vector<JinjaValue> items = items_of(ev, name, in);
  if (items.empty()) return JinjaValue::undefined("No " + name + " item, sequence was empty.");
  return name == "first" ? items.front() : items.back();
}

JinjaValue join_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"d", "attribute"});
  std::vector<JinjaValue> items = items_of(ev, name, in);
  if (b.get(1) != nullptr && !b.get(1)->is_none())
    for (JinjaValue& v : items) v = path(ev, v, *b.get(1));
  return ev.string(join(ev, b.get(0) != nullptr ? to_str(*b.get(0)) : MarkedText(), items));
}

JinjaValue list_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  return ev.list(items_of(ev, name, in));
}

JinjaValue items_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  std::vector<JinjaValue> out;
  if (!in.is_undefined()) {
    if (!in.is_dict()) fail("the filter 'items' needs a mapping, found " + type_name(in));
    for (const auto& [k, v] : in.dict().items) out.push_back(ev.list({k, v}, Seq::Kind::tuple));
  }
  return ev.list(std::move(out), Seq::Kind::generator);
}

JinjaValue dictsort_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"case_sensitive", "by", "reverse"});
  if (in.is_undefined()) fail(in.as_undefined().hint);
  if (!in.is_dict()) fail("the filter 'dictsort' needs a mapping, found " + type_name(in));
  const std::string by = b.get(1) != nullptr && b.get(1)->is_string() ? b.get(1)->text() : "key";
  if (by != "key" && by != "value") fail("dictsort: 'by' must be 'key' or 'value'");
  std::vector<JinjaValue> keys, out;
  for (const auto& [k, v] : in.dict().items) keys.push_back(sort_key(ev, by == "key" ? k : v, b.flag(0, false)));
  for (size_t i : order_by(ev, keys, b.flag(2, false)))
    out.push_back(ev.list({in.dict().items[i].first, in.dict().items[i].second}, Seq::Kind::tuple));
  return ev.list(std::move(out));
}

JinjaValue sort_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"reverse", "case_sensitive", "attribute"});
  const std::vector<JinjaValue> items = items_of(ev, name, in);
  std::vector<JinjaValue> keys, out;
  for (const JinjaValue& v : items) keys.push_back(sorted_item(ev, v, b.get(2), b.flag(1, false)));
  for (size_t i : order_by(ev, keys, b.flag(0, false))) out.push_back(items[i]);
  return ev.list(std::move(out));
}

JinjaValue extreme_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"case_sensitive", "attribute"});
  const std::vector<JinjaValue> items = items_of(ev, name, in);
  if (items.empty()) return JinjaValue::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  JinjaValue best_key = sorted_item(ev, items[0], b.get(1), b.flag(0, false));
  for (size_t i = 1; i < items.size(); ++i) {
    JinjaValue key = sorted_item(ev, items[i], b.get(1), b.flag(0, false));
    const int c = compare(key, best_key, name == "min" ? "<" : ">");
    if (name == "min" ? c >= 0 : c <= 0) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

JinjaValue unique_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"case_sensitive", "attribute"});
  std::vector<JinjaValue> seen, out;
  for (const JinjaValue& v : items_of(ev, name, in)) {
    JinjaValue key = sorted_item(ev, v, b.get(1), b.flag(0, false));
    check_hashable(key);
    ev.step(seen.size() / 8);
    if (std::any_of(seen.begin(), seen.end(), [&](const JinjaValue& s) { return equals(s, key); })) continue;
    seen.push_back(std::move(key));
    out.push_back(v);
  }
  return ev.list(std::move(out), Seq::Kind::generator);
}

JinjaValue reverse_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound none(name, args, {});
  std::vector<JinjaValue> items = items_of(ev, name, in);
  std::reverse(items.begin(), items.end());
  if (in.is_string()) return ev.string(join(ev, {}, items), in.str().markup);
  return ev.list(std::move(items), Seq::Kind::generator);
}

JinjaValue batch_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"linecount", "fill_with"});
  b.need(0);
  const int64_t size = b.integer(0, 1);
  if (size < 1 || size > 1000000) fail("batch: 'linecount' must be positive");
  std::vector<JinjaValue> out, row;
  for (const JinjaValue& v : items_of(ev, name, in)) {
    if (static_cast<int64_t>(row.size()) == size) out.push_back(ev.list(std::exchange(row, {})));
    row.push_back(v);
  }
  if (!row.empty()) {
    if (b.get(1) != nullptr && !b.get(1)->is_none()) {
      ev.charge(static_cast<size_t>(size) * sizeof(JinjaValue));
      row.resize(static_cast<size_t>(size), *b.get(1));
    }
    out.push_back(ev.list(std::move(row)));
  }
  return ev.list(std::move(out), Seq::Kind::generator);
}

JinjaValue attr_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  const Bound b(name, args, {"name"});
  const MarkedText what = to_str(b.need(0));
  if (in.is_undefined()) fail(in.as_undefined().hint);
  if (in.is_dict() && !has_method(in, what.text()))  // attributes only, never items
    return JinjaValue::undefined("'dict object' has no attribute '" + what.text() + "'");
  return ev.attribute(in, what.text());
}

Args without_first(const Args& args, size_t n) {
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<long>(n), args.positional.end());
  rest.named = args.named;
  return rest;
}

JinjaValue map_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  std::vector<JinjaValue> out;
  if (!truthy(in)) return ev.list({}, Seq::Kind::generator);  // also None and 0, as jinja2 has it
  const std::vector<JinjaValue> items = items_of(ev, name, in);
  if (args.positional.empty()) {
    const Bound b(name, args, {"attribute", "default"});
    for (const JinjaValue& v : items) {
      JinjaValue found = path(ev, v, b.need(0));
      out.push_back(found.is_undefined() && b.get(1) != nullptr ? *b.get(1) : std::move(found));
    }
  } else {
    if (!args.positional[0].is_string()) fail("map needs the name of a filter");
    const Args rest = without_first(args, 1);
    for (const JinjaValue& v : items) {
      ev.step();
      out.push_back(ev.filter(args.positional[0].text(), v, rest));
    }
  }
  return ev.list(std::move(out), Seq::Kind::generator);
}

// select, reject, selectattr, rejectattr: an optional attribute, then an optional test with its arguments.
JinjaValue select_filter(Evaluator& ev, const std::string& name, const JinjaValue& in, const Args& args) {
  if (!truthy(in)) return ev.list({}, Seq::Kind::generator);
  const bool by_attribute = name.ends_with("attr");
  const bool keep = name.starts_with("select");
  const size_t skip = by_attribute ? 1 : 0;
  if (args.positional.size() < skip) fail("the filter '" + name + "' needs the name of an attribute");
  const bool has_test = args.positional.size() > skip;
  if (has_test && !args.positional[skip].is_string()) fail("the filter '" + name + "' needs the name of a test");
  const Args rest = has_test ? without_first(args, skip + 1) : Args{};
  std::vector<JinjaValue> out;
  for (const JinjaValue& v : items_of(ev, name, in)) {
    ev.step();
    const JinjaValue subject = by_attribute ? path(ev, v, args.positional[0]) : v;
    if ((has_test ? ev.test(args.positional[skip].text(), subject, rest) : truthy(subject)) == keep) out.push_back(v);
  }
  return ev.list(std::move(out), Seq::Kind::generator);
}

struct Entry {
  std::string_view name;
  Fn fn;
};
constexpr Entry kFilters[] = {
    {"abs", abs_filter},
    {"attr", attr_filter},
    {"batch", batch_filter},
    {"capitalize", case_filter},
    {"center", center_filter},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"first", first_last_filter},
    {"float", float_filter},
    {"forceescape", escape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", first_last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", case_filter},
    {"map", map_filter},
    {"max", extreme_filter},
    {"min", extreme_filter},
    {"reject", select_filter},
    {"rejectattr", select_filter},
    {"replace", replace_filter},
    {"reverse", reverse_filter},
    {"round", round_filter},
    {"safe", safe_filter},
    {"select", select_filter},
    {"selectattr", select_filter},
    {"sort", sort_filter},
    {"string", string_filter},
    {"sum", sum_filter},
    {"title", title_filter},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"unique", unique_filter},
    {"upper", case_filter},
    {"wordcount", wordcount_filter},
};

Fn find_filter(std::string_view name) {
  const auto it = std::lower_bound(std::begin(kFilters), std::end(kFilters), name,
                                   [](const Entry& e, std::string_view n) { return e.name < n; });
  return it != std::end(kFilters) && it->name == name ? it->fn : nullptr;
}

}  // namespace

bool filter_exists(std::string_view name) { return find_filter(name) != nullptr; }

JinjaValue apply_filter(Evaluator& ev, const std::string& name, JinjaValue input, const Args& args) {
  return find_filter(name)(ev, name, input, args);
}

}  // namespace espalier::jinja
