#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja_eval.h"
#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

using K = Expr::Kind;

const char* symbol(K op) {
  switch (op) {
    case K::add: return "+";
    case K::subtract: return "-";
    case K::multiply: return "*";
    case K::divide: return "/";
    case K::floor_divide: return "//";
    case K::modulo: return "%";
    case K::power: return "**";
    default: return "?";
  }
}

[[noreturn]] void too_large() { fail("an integer grows beyond 64 bits"); }

// By reference: the arguments of a call are evaluated in any order, and the sum is written by the first one.
JinjaValue checked(bool overflow, const int64_t& v) {
  if (overflow) too_large();
  return v;
}

JinjaValue int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

JinjaValue int_arithmetic(K op, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (op) {
    case K::add: return checked(__builtin_add_overflow(a, b, &r), r);
    case K::subtract: return checked(__builtin_sub_overflow(a, b, &r), r);
    case K::multiply: return checked(__builtin_mul_overflow(a, b, &r), r);
    case K::power: return int_power(a, b);
    default: break;
  }
  if (b == 0) fail("division by zero");
  if (op == K::divide) return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return op == K::modulo ? JinjaValue(0) : int_arithmetic(K::subtract, 0, a);
  const int64_t q = a / b, rest = a % b;
  const bool down = rest != 0 && ((rest < 0) != (b < 0));  // Python rounds towards minus infinity
  return op == K::floor_divide ? q - (down ? 1 : 0) : rest + (down ? b : 0);
}

JinjaValue float_arithmetic(K op, double a, double b) {
  switch (op) {
    case K::add: return a + b;
    case K::subtract: return a - b;
    case K::multiply: return a * b;
    case K::power: return std::pow(a, b);
    default: break;
  }
  if (b == 0) fail("float division by zero");
  if (op == K::divide) return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == K::modulo) return rest == 0 ? std::copysign(0.0, b) : rest;
  return std::floor((a - rest) / b + 0.5);
}

JinjaValue add_strings(Evaluator& ev, const Str& a, const Str& b) {
  MarkedText out;
  const bool markup = a.markup || b.markup;
  out.append(markup && !a.markup ? escape_html(a.text) : a.text);
  out.append(markup && !b.markup ? escape_html(b.text) : b.text);
  return ev.string(std::move(out), markup);
}

JinjaValue repeat_list(Evaluator& ev, const JinjaValue& v, int64_t times) {
  const auto& items = v.seq().items;
  std::vector<JinjaValue> out;
  if (times > 0 && !items.empty()) {
    if (static_cast<uint64_t>(times) > (uint64_t{1} << 24) / items.size()) fail("a list of more than 16 million items");
    ev.charge(items.size() * static_cast<size_t>(times) * sizeof(JinjaValue));
    for (int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return ev.list(std::move(out), v.seq().kind);
}

// A bound of a slice as Python clips it.
int64_t clip(const JinjaValue& v, int64_t otherwise, int64_t n, int64_t low, int64_t high) {
  if (v.is_none()) return otherwise;
  if (!v.is_integral()) fail("slice indices must be integers or None, found " + type_name(v));
  int64_t i = v.as_int();
  if (i < 0) i = i < -n ? -1 : i + n;
  return std::clamp(i, low, high);
}

bool by_one(const JinjaValue& step) { return step.is_none() || (step.is_integral() && step.as_int() == 1); }

}  // namespace

JinjaValue binary(Evaluator& ev, K op, const JinjaValue& a, const JinjaValue& b) {
  if (a.is_undefined()) fail(a.as_undefined().hint);
  if (b.is_undefined()) fail(b.as_undefined().hint);
  if (op == K::negate || op == K::plus) {
    if (!a.is_number()) fail(std::string("bad operand type for unary ") + (op == K::plus ? "+" : "-") + ": '" + type_name(a) + "'");
    if (a.is_double()) return op == K::plus ? a.as_double() : -a.as_double();
    return op == K::plus ? JinjaValue(a.as_int()) : int_arithmetic(K::subtract, 0, a.as_int());
  }
  if (op == K::modulo && a.is_string()) return ev.string(percent_format(a.marked(), b), a.str().markup);
  if (a.is_number() && b.is_number()) {
    if (a.is_double() || b.is_double()) return float_arithmetic(op, a.as_double(), b.as_double());
    return int_arithmetic(op, a.as_int(), b.as_int());
  }
  if (op == K::add && a.is_string() && b.is_string()) return add_strings(ev, a.str(), b.str());
  const auto plain = [](const JinjaValue& v) { return v.is_seq(Seq::Kind::list) || v.is_seq(Seq::Kind::tuple); };
  if (op == K::add && plain(a) && plain(b) && a.seq().kind == b.seq().kind) {
    ev.charge((a.seq().items.size() + b.seq().items.size()) * sizeof(JinjaValue));
    std::vector<JinjaValue> items = a.seq().items;
    items.insert(items.end(), b.seq().items.begin(), b.seq().items.end());
    return ev.list(std::move(items), a.seq().kind);
  }
  if (op == K::multiply && (a.is_integral() || b.is_integral())) {
    const JinjaValue &v = a.is_integral() ? b : a, &n = a.is_integral() ? a : b;
    if (v.is_string()) return ev.string(repeat(ev, v.marked(), n.as_int()), v.str().markup);
    if (plain(v)) return repeat_list(ev, v, n.as_int());
  }
  fail(std::string("unsupported operand types for ") + symbol(op) + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

JinjaValue slice(Evaluator& ev, const JinjaValue& v, const JinjaValue& start, const JinjaValue& stop, const JinjaValue& step) {
  if (v.is_undefined()) fail(v.as_undefined().hint);
  const bool list = v.is_seq() && v.seq().kind <= Seq::Kind::range;
  if (!list && !v.is_string()) fail(std::string("'") + type_name(v) + "' object can't be sliced");
  std::vector<size_t> at;
  if (v.is_string()) {
    ev.step(v.text().size() / 16 * (by_one(step) ? 1 : 1 + v.marked().runs().size() / 4));
    at = code_point_offsets(v.text());
  }
  const int64_t n = static_cast<int64_t>(list ? v.seq().items.size() : at.size() - 1);
  int64_t by = 1;
  if (!step.is_none()) {
    if (!step.is_integral()) fail("slice indices must be integers or None, found " + type_name(step));
    by = step.as_int();
    if (by == 0) fail("slice step cannot be zero");
    by = std::max(by, -std::numeric_limits<int64_t>::max());
  }
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
  const int64_t first = clip(start, by > 0 ? 0 : n - 1, n, low, high), last = clip(stop, by > 0 ? n : -1, n, low, high);
  if (v.is_string() && by == 1) {
    if (first >= last) return ev.string({}, v.str().markup);
    const size_t from = at[static_cast<size_t>(first)];
    return ev.string(v.marked().substr(from, at[static_cast<size_t>(last)] - from), v.str().markup);
  }
  std::vector<JinjaValue> items;
  MarkedText text;
  for (int64_t i = first; by > 0 ? i < last : i > last;) {
    const size_t k = static_cast<size_t>(i);
    if (list)
      items.push_back(v.seq().items[k]);
    else
      text.append(v.marked().substr(at[k], at[k + 1] - at[k]));
    if (by > 0 ? by > last - i : by < last - i) break;
    i += by;
  }
  if (!list) return ev.string(std::move(text), v.str().markup);
  return ev.list(std::move(items), v.seq().kind == Seq::Kind::range ? Seq::Kind::range : v.seq().kind);
}

}  // namespace espalier::jinja
