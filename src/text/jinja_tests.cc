// The tests (`x is name`) of jinja2.
#include <algorithm>
#include <iterator>

#include "text/jinja_eval.h"
#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

using Fn = bool (*)(const JinjaValue& v, const JinjaValue* arg);

int64_t integral(const JinjaValue& v) {
  if (v.is_undefined()) fail(v.as_undefined().hint);
  if (!v.is_integral()) fail("the test needs an integer, found " + type_name(v));
  return v.as_int();
}

bool is_iterable(const JinjaValue& v) { return v.is_string() || v.is_seq() || v.is_dict() || v.is_undefined() || v.is_loop(); }
// What has a length and subscripts; jinja2's Undefined has both.
bool is_sequence(const JinjaValue& v) {
  return v.is_string() || v.is_dict() || v.is_undefined() || (v.is_seq() && v.seq().kind <= Seq::Kind::range);
}

bool all_case(const JinjaValue& v, Case mode) {
  const MarkedText text = to_str(v);
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text.text(), at);
    cased = cased || is_cased(c.value);
    at += c.size;
  }
  return cased && map_case(text, mode).text() == text.text();
}

bool even(const JinjaValue& v) {
  if (v.is_double()) return v.as_double() / 2 == static_cast<double>(static_cast<int64_t>(v.as_double() / 2));
  return integral(v) % 2 == 0;
}

struct Entry {
  std::string_view name;
  int arguments;
  Fn fn;
};

constexpr Entry kTests[] = {
    {"!=", 1, [](const JinjaValue& v, const JinjaValue* a) { return !equals(v, *a); }},
    {"<", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, "<") < 0; }},
    {"<=", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, "<=") <= 0; }},
    {"==", 1, [](const JinjaValue& v, const JinjaValue* a) { return equals(v, *a); }},
    {">", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, ">") > 0; }},
    {">=", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, ">=") >= 0; }},
    {"boolean", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_bool(); }},
    {"callable", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_callable() || v.is_macro() || v.is_undefined(); }},
    {"defined", 0, [](const JinjaValue& v, const JinjaValue*) { return !v.is_undefined(); }},
    {"divisibleby", 1,
     [](const JinjaValue& v, const JinjaValue* a) {
       const int64_t n = integral(*a);
       if (n == 0) fail("division by zero");
       return n == -1 || integral(v) % n == 0;
     }},
    {"eq", 1, [](const JinjaValue& v, const JinjaValue* a) { return equals(v, *a); }},
    {"equalto", 1, [](const JinjaValue& v, const JinjaValue* a) { return equals(v, *a); }},
    {"escaped", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_string() && v.str().markup; }},
    {"even", 0, [](const JinjaValue& v, const JinjaValue*) { return even(v); }},
    {"false", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_bool() && !v.as_bool(); }},
    {"filter", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_string() && filter_exists(v.text()); }},
    {"float", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_double(); }},
    {"ge", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, ">=") >= 0; }},
    {"greaterthan", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, ">") > 0; }},
    {"gt", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, ">") > 0; }},
    {"in", 1, [](const JinjaValue& v, const JinjaValue* a) { return contains(*a, v); }},
    {"integer", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_int(); }},
    {"iterable", 0, [](const JinjaValue& v, const JinjaValue*) { return is_iterable(v); }},
    {"le", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, "<=") <= 0; }},
    {"lessthan", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, "<") < 0; }},
    {"lower", 0, [](const JinjaValue& v, const JinjaValue*) { return all_case(v, Case::lower); }},
    {"lt", 1, [](const JinjaValue& v, const JinjaValue* a) { return compare(v, *a, "<") < 0; }},
    {"mapping", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_dict(); }},
    {"ne", 1, [](const JinjaValue& v, const JinjaValue* a) { return !equals(v, *a); }},
    {"none", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_none(); }},
    {"number", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_number(); }},
    {"odd", 0, [](const JinjaValue& v, const JinjaValue*) { return !even(v); }},
    {"sameas", 1, [](const JinjaValue& v, const JinjaValue* a) { return v.same_object(*a); }},
    {"sequence", 0, [](const JinjaValue& v, const JinjaValue*) { return is_sequence(v); }},
    {"string", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_string(); }},
    {"test", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_string() && test_exists(v.text()); }},
    {"true", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_bool() && v.as_bool(); }},
    {"undefined", 0, [](const JinjaValue& v, const JinjaValue*) { return v.is_undefined(); }},
    {"upper", 0, [](const JinjaValue& v, const JinjaValue*) { return all_case(v, Case::upper); }},
};

const Entry* find_test(std::string_view name) {
  const auto it = std::lower_bound(std::begin(kTests), std::end(kTests), name,
                                   [](const Entry& e, std::string_view n) { return e.name < n; });
  return it != std::end(kTests) && it->name == name ? it : nullptr;
}

}  // namespace

bool test_exists(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(Evaluator& ev, const std::string& name, const JinjaValue& value, const Args& args) {
  const Entry& e = *find_test(name);
  const size_t given = args.positional.size() + args.named.size();
  if (given != static_cast<size_t>(e.arguments))
    fail("the test '" + name + "' takes " + std::to_string(e.arguments) + " argument(s), found " + std::to_string(given));
  ev.step(value.is_string() ? value.text().size() / 64 : 0);
  const JinjaValue* arg = e.arguments == 0 ? nullptr : args.positional.empty() ? &args.named[0].second : &args.positional[0];
  return e.fn(value, arg);
}

}  // namespace espalier::jinja
