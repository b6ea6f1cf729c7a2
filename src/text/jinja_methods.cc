// Methods of str, list, dict and the loop.
#include <algorithm>
#include <functional>

#include "text/jinja_eval.h"
#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

// Every public method that Python's types have, so that `value.name` finds the same thing; those that have no code below
// fail by name when they are called.
constexpr std::string_view kStrMethods[] = {
    "capitalize", "casefold",  "center",     "count",        "encode",  "endswith",  "expandtabs", "find",
    "format",     "format_map", "index",     "isalnum",      "isalpha", "isascii",   "isdecimal",  "isdigit",
    "isidentifier", "islower", "isnumeric",  "isprintable",  "isspace", "istitle",   "isupper",    "join",
    "ljust",      "lower",     "lstrip",     "maketrans",    "partition", "removeprefix", "removesuffix", "replace",
    "rfind",      "rindex",    "rjust",      "rpartition",   "rsplit",  "rstrip",    "split",      "splitlines",
    "startswith", "strip",     "swapcase",   "title",        "translate", "upper",   "zfill"};
constexpr std::string_view kListMethods[] = {"append", "clear",  "copy",   "count",   "extend", "index",
                                             "insert", "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kListUnsafe[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kDictMethods[] = {"clear",      "copy",   "fromkeys", "get",  "items", "keys", "pop",
                                             "popitem", "setdefault", "update", "values"};
constexpr std::string_view kDictUnsafe[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <size_t N>
bool among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

const MarkedText& text_argument(const char* what, const JinjaValue& v) {
  if (v.is_undefined()) fail(v.as_undefined().hint);
  if (!v.is_string()) fail(std::string(what) + ": expected a string, found " + type_name(v));
  return v.marked();
}

// startswith and endswith take one string or a tuple of them.
bool affix(const JinjaValue& self, const JinjaValue& what, bool at_end) {
  const std::string_view s = self.text();
  const auto matches = [&](const JinjaValue& v) {
    const std::string& t = text_argument(at_end ? "endswith" : "startswith", v).text();
    return at_end ? s.ends_with(t) : s.starts_with(t);
  };
  if (what.is_seq(Seq::Kind::tuple)) return std::any_of(what.seq().items.begin(), what.seq().items.end(), matches);
  return matches(what);
}

bool all_of(std::string_view s, bool (*is)(char32_t)) {
  for (size_t at = 0; at < s.size();) {
    const CodePoint c = decode_at(s, at);
    if (!is(c.value)) return false;
    at += c.size;
  }
  return !s.empty();
}

// islower, isupper: some cased letter, and none that the mapping changes.
bool has_case(const JinjaValue& self, Case mode) {
  bool cased = false;
  for (size_t at = 0; at < self.text().size();) {
    const CodePoint c = decode_at(self.text(), at);
    cased = cased || is_cased(c.value);
    at += c.size;
  }
  return cased && map_case(self.marked(), mode).text() == self.text();
}

int64_t index_of(const std::string& s, size_t byte) {
  return static_cast<int64_t>(count_code_points(std::string_view(s).substr(0, byte)));
}

std::vector<JinjaValue> as_values(Evaluator& ev, std::vector<MarkedText> pieces, bool markup) {
  std::vector<JinjaValue> out;
  for (MarkedText& p : pieces) out.push_back(ev.string(std::move(p), markup));
  return out;
}

JinjaValue split_method(Evaluator& ev, const JinjaValue& self, const Args& args, bool from_right) {
  const Bound b(from_right ? "rsplit" : "split", args, {"sep", "maxsplit"});
  const bool blank = b.get(0) == nullptr || b.get(0)->is_none();
  const MarkedText* separator = blank ? nullptr : &text_argument("split", *b.get(0));
  // Each piece walks the runs of the text.
  ev.step(self.text().size() / 8 * (1 + self.marked().runs().size() / 8));
  return ev.list(as_values(ev, split(self.marked(), separator, b.integer(1, -1), from_right), self.str().markup));
}

JinjaValue partition_method(Evaluator& ev, const JinjaValue& self, const Args& args, bool from_right) {
  const Bound b("partition", args, {"sep"});
  const MarkedText& sep = text_argument("partition", b.need(0));
  if (sep.empty()) fail("empty separator");
  const std::string& s = self.text();
  const size_t hit = from_right ? s.rfind(sep.text()) : s.find(sep.text());
  std::vector<MarkedText> parts(3);
  if (hit == std::string::npos) {
    parts[from_right ? 2 : 0] = self.marked();
  } else {
    parts[0] = self.marked().substr(0, hit);
    parts[1] = self.marked().substr(hit, sep.size());  // the text's own bytes, whoever wrote the separator
    parts[2] = self.marked().substr(hit + sep.size());
  }
  return ev.list(as_values(ev, std::move(parts), self.str().markup), Seq::Kind::tuple);
}

JinjaValue justify(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args) {
  const Bound b(name, args, {"width", "fillchar"});
  b.need(0);
  const MarkedText fill = b.get(1) != nullptr ? text_argument("fillchar", *b.get(1)) : MarkedText(" ", Origin::data);
  const int64_t room = b.integer(0, 0) - static_cast<int64_t>(count_code_points(self.text()));
  if (room <= 0) return self;
  // Python's center puts the odd one to the left when the width is odd.
  const int64_t left = name == "ljust" ? 0 : name == "rjust" ? room : room / 2 + (room & b.integer(0, 0) & 1);
  MarkedText out = repeat(ev, fill, left);
  out.append(self.marked());
  out.append(repeat(ev, fill, room - left));
  return ev.string(std::move(out), self.str().markup);
}

JinjaValue zfill(Evaluator& ev, const JinjaValue& self, const Args& args) {
  const Bound b("zfill", args, {"width"});
  b.need(0);
  const MarkedText& text = self.marked();
  const size_t sign = !text.empty() && (text.text()[0] == '+' || text.text()[0] == '-') ? 1 : 0;
  const int64_t room = b.integer(0, 0) - static_cast<int64_t>(count_code_points(text.text()));
  MarkedText out = text.substr(0, sign);
  out.append(repeat(ev, MarkedText("0", Origin::data), room));
  out.append(text.substr(sign));
  return ev.string(std::move(out), self.str().markup);
}

JinjaValue find_method(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args) {
  const Bound b(name, args, {"sub"});
  const std::string& what = text_argument(name.c_str(), b.need(0)).text();
  const std::string& s = self.text();
  ev.step(s.size() / 64);
  if (name == "count") {
    if (what.empty()) return static_cast<int64_t>(count_code_points(s)) + 1;
    int64_t n = 0;
    for (size_t hit = s.find(what); hit != std::string::npos; hit = s.find(what, hit + what.size())) ++n;
    return n;
  }
  const size_t hit = name[0] == 'r' ? s.rfind(what) : s.find(what);
  if (hit != std::string::npos) return index_of(s, hit);
  if (name.ends_with("index")) fail("substring not found");
  return -1;
}

JinjaValue predicate(const JinjaValue& self, const std::string& name) {
  const std::string_view s = self.text();
  if (name == "isspace") return all_of(s, is_space);
  if (name == "isalpha") return all_of(s, is_alpha);
  if (name == "isdigit" || name == "isdecimal" || name == "isnumeric") return all_of(s, is_digit);
  if (name == "isalnum") return all_of(s, [](char32_t c) { return is_alpha(c) || is_digit(c); });
  if (name == "isascii") return s.empty() || all_of(s, [](char32_t c) { return c < 128; });
  if (name == "isprintable") return s.empty() || all_of(s, is_printable);
  if (name == "islower") return has_case(self, Case::lower);
  if (name == "isupper") return has_case(self, Case::upper);
  fail("str." + name + " is not supported");
}

JinjaValue strip_method(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args) {
  const Bound b(name, args, {"chars"});
  return ev.string(strip(self.marked(), b.get(0), name != "rstrip", name != "lstrip"), self.str().markup);
}

JinjaValue remove_affix(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args) {
  const Bound b(name, args, {"affix"});
  const bool at_end = name == "removesuffix";
  const size_t size = text_argument(name.c_str(), b.need(0)).size();
  if (!affix(self, b.need(0), at_end)) return self;
  const size_t left = self.text().size() - size;
  return ev.string(self.marked().substr(at_end ? 0 : size, left), self.str().markup);
}

JinjaValue str_method(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args) {
  const bool markup = self.str().markup;
  ev.step(self.text().size() / 64);
  if (name == "strip" || name == "lstrip" || name == "rstrip") return strip_method(ev, self, name, args);
  if (name == "split" || name == "rsplit") return split_method(ev, self, args, name == "rsplit");
  if (name == "startswith" || name == "endswith") {
    const Bound b(name, args, {"prefix"});
    return affix(self, b.need(0), name == "endswith");
  }
  if (name == "replace") {
    const Bound b(name, args, {"old", "new", "count"});
    const MarkedText &from = text_argument("replace", b.need(0)), &to = text_argument("replace", b.need(1));
    return ev.string(replace(ev, self.marked(), from, to, b.integer(2, -1)), markup);
  }
  if (name == "join") {
    const Bound b(name, args, {"iterable"});
    const std::vector<JinjaValue> items = ev.iterate_charged(b.need(0));
    for (const JinjaValue& v : items)
      if (!v.is_string()) fail("join: expected strings, found " + type_name(v));
    return ev.string(join(ev, self.marked(), items), markup);
  }
  if (name == "format") return ev.string(brace_format(ev, self.marked(), args), markup);
  if (name == "format_map") {
    const Bound b(name, args, {"mapping"});
    if (!b.need(0).is_dict()) fail("format_map needs a mapping");
    Args named;
    for (const auto& [k, v] : b.need(0).dict().items)
      if (k.is_string()) named.named.emplace_back(k.text(), v);
    return ev.string(brace_format(ev, self.marked(), named), markup);
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count")
    return find_method(ev, self, name, args);
  if (name == "center" || name == "ljust" || name == "rjust") return justify(ev, self, name, args);
  if (name == "partition" || name == "rpartition") return partition_method(ev, self, args, name == "rpartition");
  if (name == "removeprefix" || name == "removesuffix") return remove_affix(ev, self, name, args);
  if (name == "splitlines") {
    const Bound b(name, args, {"keepends"});
    ev.step(self.text().size() / 8 * (1 + self.marked().runs().size() / 8));
    return ev.list(as_values(ev, split_lines(self.marked(), b.flag(0, false)), markup));
  }
  if (name == "zfill") return zfill(ev, self, args);
  const Bound none(name, args, {});
  if (name == "swapcase") return ev.string(swap_case(self.marked()), markup);
  if (name == "lower" || name == "casefold") return ev.string(map_case(self.marked(), Case::lower), markup);
  if (name == "upper") return ev.string(map_case(self.marked(), Case::upper), markup);
  if (name == "title") return ev.string(title_words(self.marked()), markup);
  if (name == "capitalize") return ev.string(capitalize(self.marked()), markup);
  return predicate(self, name);
}

JinjaValue list_method(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args) {
  const auto& items = self.seq().items;
  if (name == "copy") return self;
  const Bound b(name, args, {"value"});
  ev.step(items.size());
  int64_t n = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equals(items[i], b.need(0))) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++n;
  }
  if (name == "index") fail("the value is not in the list");
  return n;
}

JinjaValue dict_method(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args) {
  const auto& items = self.dict().items;
  if (name == "get") {
    const Bound b(name, args, {"key", "default"});
    ev.step(items.size() / 16);
    check_hashable(b.need(0));
    if (const JinjaValue* v = find(self.dict(), b.need(0))) return *v;
    return b.get(1) != nullptr ? *b.get(1) : JinjaValue();
  }
  if (name == "fromkeys") fail("dict.fromkeys is not supported");
  const Bound none(name, args, {});
  if (name == "copy") return self;
  std::vector<JinjaValue> out;
  for (const auto& [k, v] : items) {
    if (name == "keys") out.push_back(k);
    else if (name == "values") out.push_back(v);
    else out.push_back(ev.list({k, v}, Seq::Kind::tuple));
  }
  const Seq::Kind kind = name == "keys" ? Seq::Kind::dict_keys : name == "values" ? Seq::Kind::dict_values : Seq::Kind::dict_items;
  return ev.list(std::move(out), kind);
}

JinjaValue loop_method(const JinjaValue& self, const std::string& name, const Args& args) {
  LoopState& loop = *self.loop();
  if (name == "cycle") {
    if (args.positional.empty()) fail("no items for cycling given");
    return args.positional[loop.index % args.positional.size()];
  }
  const bool same = loop.has_changed_value && loop.changed_value.size() == args.positional.size() &&
                    std::equal(args.positional.begin(), args.positional.end(), loop.changed_value.begin(), equals);
  loop.has_changed_value = true;
  loop.changed_value = args.positional;
  return !same;
}

}  // namespace

bool has_method(const JinjaValue& self, std::string_view name) {
  if (self.is_string()) return among(kStrMethods, name);
  if (self.is_dict()) return among(kDictMethods, name);
  if (self.is_seq(Seq::Kind::list)) return among(kListMethods, name);
  if (self.is_seq(Seq::Kind::tuple) || self.is_seq(Seq::Kind::range)) return among(kTupleMethods, name);
  return false;
}

bool is_unsafe_method(const JinjaValue& self, std::string_view name) {
  return self.is_dict() ? among(kDictUnsafe, name) : self.is_seq(Seq::Kind::list) && among(kListUnsafe, name);
}

JinjaValue call_method(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args) {
  if (self.is_string()) return str_method(ev, self, name, args);
  if (self.is_dict()) return dict_method(ev, self, name, args);
  if (self.is_loop()) return loop_method(self, name, args);
  return list_method(ev, self, name, args);
}

}  // namespace espalier::jinja
