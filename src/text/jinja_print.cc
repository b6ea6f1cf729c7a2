// str(), repr() and json.dumps of template values.
#include <cmath>
#include <cstdio>

#include "text/jinja_sort.h"
#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace espalier::jinja {
namespace {

void put(std::string_view text, MarkedText& out) { out.append(text, Origin::data); }

std::string escape_code(char32_t c, bool pairs) {
  char buffer[24];
  if (pairs && c > 0xffff) {
    const unsigned v = static_cast<unsigned>(c) - 0x10000;
    std::snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", 0xd800 + (v >> 10), 0xdc00 + (v & 0x3ff));
  } else if (pairs || (c > 0xff && c <= 0xffff)) {
    std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
  } else if (c <= 0xff) {
    std::snprintf(buffer, sizeof buffer, "\\x%02x", static_cast<unsigned>(c));
  } else {
    std::snprintf(buffer, sizeof buffer, "\\U%08x", static_cast<unsigned>(c));
  }
  return buffer;
}

// Appends the characters of `in`, each through `escape` (empty: as it is), with their origins. Runs of plain characters
// go over in one piece.
template <typename Escape>
void append_escaped(const MarkedText& in, MarkedText& out, Escape escape) {
  const std::string& s = in.text();
  size_t begin = 0;
  for (const MarkedText::Run& run : in.runs()) {
    size_t plain = begin;
    for (size_t at = begin; at < run.end;) {
      const CodePoint c = decode_at(std::string_view(s).substr(0, run.end), at);
      const std::string e = escape(c.value);
      if (!e.empty()) {
        out.append(std::string_view(s).substr(plain, at - plain), run.origin);
        out.append(e, run.origin);
        plain = at + c.size;
      }
      at += c.size;
    }
    out.append(std::string_view(s).substr(plain, run.end - plain), run.origin);
    begin = run.end;
  }
}

void repr_string(const MarkedText& text, MarkedText& out) {
  const bool has_single = text.text().find('\'') != std::string::npos;
  const bool has_double = text.text().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  put(std::string_view(&quote, 1), out);
  append_escaped(text, out, [quote](char32_t c) -> std::string {
    if (c == '\\') return "\\\\";
    if (c == static_cast<char32_t>(quote)) return std::string("\\") + quote;
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (is_printable(c)) return {};
    return escape_code(c, false);
  });
  put(std::string_view(&quote, 1), out);
}

struct Namespaces {  // those being printed, so that one that holds itself ends in an error
  int open = 0;
};

void repr_into(const JinjaValue& v, MarkedText& out, Namespaces& open);

void repr_items(const std::vector<JinjaValue>& items, MarkedText& out, Namespaces& open) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) put(", ", out);
    repr_into(items[i], out, open);
  }
}

void repr_seq(const Seq& s, MarkedText& out, Namespaces& open) {
  switch (s.kind) {
    case Seq::Kind::list:
      put("[", out);
      repr_items(s.items, out, open);
      put("]", out);
      return;
    case Seq::Kind::tuple:
      put("(", out);
      repr_items(s.items, out, open);
      put(s.items.size() == 1 ? ",)" : ")", out);
      return;
    case Seq::Kind::generator: fail("a generator has no text; put |list or |join after the filter");
    case Seq::Kind::range: {
      const auto& n = s.items;
      const int64_t first = n.empty() ? 0 : n.front().as_int();
      const int64_t step = n.size() < 2 ? 1 : n[1].as_int() - first;
      put("range(" + std::to_string(first) + ", " + std::to_string(n.empty() ? 0 : n.back().as_int() + step), out);
      put(step == 1 ? ")" : ", " + std::to_string(step) + ")", out);
      return;
    }
    default:
      put(s.kind == Seq::Kind::dict_keys     ? "dict_keys(["
          : s.kind == Seq::Kind::dict_values ? "dict_values(["
                                             : "dict_items([",
          out);
      repr_items(s.items, out, open);
      put("])", out);
  }
}

void repr_dict(const std::vector<std::pair<JinjaValue, JinjaValue>>& items, MarkedText& out, Namespaces& open) {
  put("{", out);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) put(", ", out);
    repr_into(items[i].first, out, open);
    put(": ", out);
    repr_into(items[i].second, out, open);
  }
  put("}", out);
}

void repr_namespace(const Namespace& n, MarkedText& out, Namespaces& open) {
  if (++open.open > 20) fail("a namespace that holds itself can't be printed");
  put("<Namespace {", out);
  for (size_t i = 0; i < n.attrs.size(); ++i) {
    if (i != 0) put(", ", out);
    repr_string(MarkedText(n.attrs[i].first, Origin::data), out);
    put(": ", out);
    repr_into(n.attrs[i].second, out, open);
  }
  put("}>", out);
  --open.open;
}

void repr_into(const JinjaValue& v, MarkedText& out, Namespaces& open) {
  if (out.size() > (size_t{64} << 20)) fail("the text of a value is longer than 64 MiB");
  if (v.is_none()) return put("None", out);
  if (v.is_bool()) return put(v.as_bool() ? "True" : "False", out);
  if (v.is_int()) return put(std::to_string(v.as_int()), out);
  if (v.is_double()) return put(float_repr(v.as_double()), out);
  if (v.is_string()) {
    if (v.str().markup) put("Markup(", out);
    repr_string(v.marked(), out);
    if (v.str().markup) put(")", out);
    return;
  }
  if (v.is_seq()) return repr_seq(v.seq(), out, open);
  if (v.is_dict()) return repr_dict(v.dict().items, out, open);
  if (v.is_undefined()) return put("Undefined", out);
  if (v.is_namespace()) return repr_namespace(*v.as_namespace(), out, open);
  fail("a " + type_name(v) + " can't be printed; was it meant to be called?");
}

void json_string(const MarkedText& text, bool ensure_ascii, MarkedText& out) {
  put("\"", out);
  append_escaped(text, out, [ensure_ascii](char32_t c) -> std::string {
    if (c == '"') return "\\\"";
    if (c == '\\') return "\\\\";
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (c == '\f') return "\\f";
    if (c == '\b') return "\\b";
    if (c < 0x20 || (ensure_ascii && c > 0x7e)) return escape_code(c, true);
    return {};
  });
  put("\"", out);
}

std::string json_float(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return float_repr(d);
}

class JsonPrinter {
 public:
  JsonPrinter(const JsonOptions& options, MarkedText& out) : o_(options), out_(out) {}

  void print(const JinjaValue& v, int depth) {
    if (out_.size() > (size_t{64} << 20)) fail("the JSON of a value is longer than 64 MiB");
    if (v.is_none()) return put("null", out_);
    if (v.is_bool()) return put(v.as_bool() ? "true" : "false", out_);
    if (v.is_int()) return put(std::to_string(v.as_int()), out_);
    if (v.is_double()) return put(json_float(v.as_double()), out_);
    if (v.is_string()) return json_string(v.marked(), o_.ensure_ascii, out_);
    if (v.is_dict()) return object(v.dict(), depth);
    if (v.is_seq(Seq::Kind::list) || v.is_seq(Seq::Kind::tuple)) return array(v.seq(), depth);
    if (v.is_undefined()) fail("tojson of an undefined value: " + v.as_undefined().hint);
    fail("object of type " + type_name(v) + " has no JSON form");
  }

 private:
  void newline(int depth) {
    if (!o_.has_indent) return;
    put("\n", out_);
    for (int i = 0; i < depth; ++i) put(o_.indent, out_);
  }
  void array(const Seq& s, int depth) {
    if (s.items.empty()) return put("[]", out_);
    put("[", out_);
    for (size_t i = 0; i < s.items.size(); ++i) {
      if (i != 0) put(o_.item_separator, out_);
      newline(depth + 1);
      print(s.items[i], depth + 1);
    }
    newline(depth);
    put("]", out_);
  }
  void key(const JinjaValue& k) {
    if (k.is_string()) return json_string(k.marked(), o_.ensure_ascii, out_);
    if (!k.is_number() && !k.is_none()) fail("keys must be str, int, float, bool or None, not " + type_name(k));
    put("\"", out_);
    print(k, 0);
    put("\"", out_);
  }
  void object(const Dict& d, int depth) {
    if (d.items.empty()) return put("{}", out_);
    const std::vector<size_t> order = stable_order(d.items.size(), [&](size_t a, size_t b) {
      return o_.sort_keys && compare(d.items[a].first, d.items[b].first, "<") < 0;
    });
    put("{", out_);
    for (size_t i = 0; i < order.size(); ++i) {
      if (i != 0) put(o_.item_separator, out_);
      newline(depth + 1);
      key(d.items[order[i]].first);
      put(o_.key_separator, out_);
      print(d.items[order[i]].second, depth + 1);
    }
    newline(depth);
    put("}", out_);
  }

  const JsonOptions& o_;
  MarkedText& out_;
};

}  // namespace

MarkedText to_repr(const JinjaValue& v) {
  MarkedText out;
  Namespaces open;
  repr_into(v, out, open);
  return out;
}

MarkedText to_str(const JinjaValue& v) {
  if (v.is_string()) return v.marked();
  if (v.is_undefined()) return {};
  return to_repr(v);
}

MarkedText to_json_text(const JinjaValue& v, const JsonOptions& options) {
  MarkedText out;
  JsonPrinter(options, out).print(v, 0);
  return out;
}

}  // namespace espalier::jinja
