// The values that a chat template computes with: Python's, as jinja2 templates see them.
//
// Strings carry an Origin for each byte (marked_text.h). Lists, tuples and dicts are immutable, as in transformers'
// sandbox, so they are shared and never copied; only namespaces change, and those belong to the render (JinjaHeap).
// Nesting is bounded by kMaxJinjaDepth when a container is made, so recursion over a value is safe.
// Room-internal: failures are JinjaFailure exceptions, caught in template.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/value.h"
#include "text/marked_text.h"

namespace espalier::jinja {

inline constexpr int kMaxJinjaDepth = 300;

// A template or its data did something that ends the render. `line` 0: filled in by the evaluator.
struct JinjaFailure {
  std::string message;
  int line = 0;
};
[[noreturn]] void fail(std::string message);

class JinjaValue;
struct Macro;
struct LoopState;

struct Str {
  MarkedText text;
  bool markup = false;  // made by |safe or |escape: `+` with it escapes the other side, as markupsafe does
};

struct Seq {
  enum class Kind { list, tuple, range, generator, dict_keys, dict_values, dict_items };
  Kind kind = Kind::list;
  std::vector<JinjaValue> items;
  int depth = 1;
  mutable bool consumed = false;  // a generator gives its items once
};

struct Dict {
  std::vector<std::pair<JinjaValue, JinjaValue>> items;
  int depth = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, JinjaValue>> attrs;
};

// A method taken from a value, or a function of the environment.
struct Callable;

struct Undefined {
  std::string hint;  // the sentence of the error when it is used
};

struct None {};

class JinjaValue {
 public:
  using StrPtr = std::shared_ptr<const Str>;
  using SeqPtr = std::shared_ptr<const Seq>;
  using DictPtr = std::shared_ptr<const Dict>;
  using CallPtr = std::shared_ptr<const Callable>;
  using UndefinedPtr = std::shared_ptr<const Undefined>;

  JinjaValue() : v_(None{}) {}
  JinjaValue(bool b) : v_(b) {}
  JinjaValue(int64_t i) : v_(i) {}
  JinjaValue(int i) : v_(int64_t{i}) {}
  JinjaValue(double d) : v_(d) {}
  JinjaValue(StrPtr s) : v_(std::move(s)) {}
  JinjaValue(SeqPtr s) : v_(std::move(s)) {}
  JinjaValue(DictPtr d) : v_(std::move(d)) {}
  JinjaValue(CallPtr c) : v_(std::move(c)) {}
  JinjaValue(UndefinedPtr u) : v_(std::move(u)) {}
  JinjaValue(Namespace* n) : v_(n) {}
  JinjaValue(const Macro* m) : v_(m) {}
  JinjaValue(LoopState* l) : v_(l) {}
  JinjaValue(const char*) = delete;
  JinjaValue(MarkedText text, bool markup = false)
      : v_(std::make_shared<const Str>(Str{std::move(text), markup})) {}

  static JinjaValue undefined(std::string hint) { return UndefinedPtr(std::make_shared<Undefined>(Undefined{std::move(hint)})); }
  static JinjaValue list(std::vector<JinjaValue> items, Seq::Kind kind = Seq::Kind::list);
  // Keys must be distinct.
  static JinjaValue dict(std::vector<std::pair<JinjaValue, JinjaValue>> items);
  static JinjaValue data(std::string_view text) { return JinjaValue(MarkedText(text, Origin::data)); }
  static JinjaValue control(std::string_view text) { return JinjaValue(MarkedText(text, Origin::control)); }

  bool is_none() const { return std::holds_alternative<None>(v_); }
  bool is_bool() const { return std::holds_alternative<bool>(v_); }
  bool is_int() const { return std::holds_alternative<int64_t>(v_); }
  bool is_double() const { return std::holds_alternative<double>(v_); }
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_number() const { return is_int() || is_bool() || is_double(); }
  bool is_string() const { return std::holds_alternative<StrPtr>(v_); }
  bool is_seq() const { return std::holds_alternative<SeqPtr>(v_); }
  bool is_seq(Seq::Kind kind) const { return is_seq() && seq().kind == kind; }
  bool is_dict() const { return std::holds_alternative<DictPtr>(v_); }
  bool is_undefined() const { return std::holds_alternative<UndefinedPtr>(v_); }
  bool is_namespace() const { return std::holds_alternative<Namespace*>(v_); }
  bool is_macro() const { return std::holds_alternative<const Macro*>(v_); }
  bool is_callable() const { return std::holds_alternative<CallPtr>(v_); }
  bool is_loop() const { return std::holds_alternative<LoopState*>(v_); }

  bool as_bool() const { return std::get<bool>(v_); }
  int64_t as_int() const { return is_bool() ? int64_t{as_bool()} : std::get<int64_t>(v_); }
  double as_double() const { return is_double() ? std::get<double>(v_) : static_cast<double>(as_int()); }
  const Str& str() const { return *std::get<StrPtr>(v_); }
  const MarkedText& marked() const { return str().text; }
  const std::string& text() const { return str().text.text(); }
  const Seq& seq() const { return *std::get<SeqPtr>(v_); }
  const Dict& dict() const { return *std::get<DictPtr>(v_); }
  const Callable& callable() const { return *std::get<CallPtr>(v_); }
  const Undefined& as_undefined() const { return *std::get<UndefinedPtr>(v_); }
  Namespace* as_namespace() const { return std::get<Namespace*>(v_); }
  const Macro* macro() const { return std::get<const Macro*>(v_); }
  LoopState* loop() const { return std::get<LoopState*>(v_); }
  int depth() const { return is_seq() ? seq().depth : is_dict() ? dict().depth : 0; }
  bool same_object(const JinjaValue& other) const;

 private:
  std::variant<None, bool, int64_t, double, StrPtr, SeqPtr, DictPtr, CallPtr, UndefinedPtr, Namespace*, const Macro*, LoopState*>
      v_;
};

struct Callable {
  enum class Kind { function, method };
  Kind kind = Kind::function;
  std::string name;
  JinjaValue self;  // of a method
};

// Python's type name, for messages: "str", "int", "NoneType", "list" ...
std::string type_name(const JinjaValue& v);
bool truthy(const JinjaValue& v);
// `==` as Python has it (1 == 1.0 == True; a list is no tuple).
bool equals(const JinjaValue& a, const JinjaValue& b);
// <0, 0, >0 for numbers, strings and sequences; fails for types that have no order, naming the operator.
int compare(const JinjaValue& a, const JinjaValue& b, const char* op);
bool contains(const JinjaValue& container, const JinjaValue& item);
// The items that iteration gives: characters, elements, keys. Fails for what can't be iterated.
std::vector<JinjaValue> iterate(const JinjaValue& v);
// The entry of that key, or nullptr.
const JinjaValue* find(const Dict& dict, const JinjaValue& key);
const JinjaValue* find(const Dict& dict, std::string_view key);
// Fails for what Python can't hash.
void check_hashable(const JinjaValue& key);

// str() and repr(). Quotes, brackets, digits and words count as data: only text that a template wrote can be control.
MarkedText to_str(const JinjaValue& v);
MarkedText to_repr(const JinjaValue& v);
std::string float_repr(double d);

// json.dumps with transformers' options. `indent` < 0: one line.
struct JsonOptions {
  bool ensure_ascii = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator, key_separator;
  bool sort_keys = false;
};
MarkedText to_json_text(const JinjaValue& v, const JsonOptions& options);

// A JSON value as data, throughout. Requires: nesting within kMaxValueDepth.
JinjaValue from_value(const Value& v);

}  // namespace espalier::jinja
