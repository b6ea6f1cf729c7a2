// Walks the tree of a template and writes the text. One Evaluator renders once.
//
// Everything is bounded: steps, bytes of all strings and lists made, depth of the recursion. A template that goes beyond
// ends with a JinjaFailure, as every other failure does.
#pragma once

#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/template.h"

namespace espalier::jinja {

// What a call hands over, evaluated.
struct Args {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

// The arguments of a built-in, sorted to its parameters. Fails for unknown, repeated and surplus ones.
class Bound {
 public:
  Bound(std::string_view what, const Args& args, std::initializer_list<std::string_view> parameters);
  bool has(size_t i) const { return found_[i] != nullptr && !found_[i]->is_undefined(); }
  // Requires: given, else fails with the parameter's name.
  const JinjaValue& need(size_t i) const;
  const JinjaValue* get(size_t i) const { return found_[i]; }
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise) const;

 private:
  std::string what_;
  std::vector<std::string_view> parameters_;
  std::vector<const JinjaValue*> found_;
};

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, JinjaValue>> names;  // views into the tree or into static text
  bool captured = false;  // a macro was made here and may read it later
};

struct Macro {
  const MacroBody* body = nullptr;
  Scope* scope = nullptr;
};

struct LoopState {
  std::vector<JinjaValue> items;  // emptied when the loop is over
  size_t index = 0, count = 0;
  int depth = 1;
  bool has_changed_value = false;
  std::vector<JinjaValue> changed_value;
};

class Evaluator {
 public:
  Evaluator(const Tree& tree, const TemplateLimits& limits, const CivilTime& now);
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // `name` must outlive the evaluator.
  void define(std::string_view name, JinjaValue value);
  MarkedText run();

  // ---- for filters, tests and methods
  // Books work and memory; fails beyond the limits.
  void charge(size_t bytes);
  void step(size_t n = 1);
  JinjaValue call(const JinjaValue& callee, Args args);
  JinjaValue filter(const std::string& name, JinjaValue input, const Args& args);
  bool test(const std::string& name, const JinjaValue& value, const Args& args);
  // `object.name` and `object[key]`: undefined where there is none; fails on an undefined object.
  JinjaValue attribute(const JinjaValue& object, std::string_view name);
  JinjaValue item(const JinjaValue& object, const JinjaValue& key);
  JinjaValue string(MarkedText text, bool markup = false);
  JinjaValue list(std::vector<JinjaValue> items, Seq::Kind kind = Seq::Kind::list);
  std::vector<JinjaValue> iterate_charged(const JinjaValue& v);
  Namespace* make_namespace();
  const CivilTime& now() const { return now_; }

 private:
  enum class Flow { next, break_, continue_ };
  struct DepthGuard;
  struct ScopeGuard;

  JinjaValue eval(const Expr& e);
  JinjaValue eval_inner(const Expr& e);
  JinjaValue eval_name(const std::string& name);
  JinjaValue eval_dict(const Expr& e);
  JinjaValue eval_call(const Expr& e);
  JinjaValue eval_compare(const Expr& e);
  JinjaValue eval_concat(const Expr& e);
  JinjaValue eval_slice(const Expr& e);
  JinjaValue eval_binary(const Expr& e);
  JinjaValue eval_filter_chain(const Expr* e, JinjaValue input);
  Args eval_arguments(const Expr& e);

  Flow exec(const Body& body);
  Flow exec_one(const Stmt& s);
  Flow exec_for(const Stmt& s);
  Flow exec_if(const Stmt& s);
  void exec_macro(const Stmt& s);
  void exec_call_block(const Stmt& s);
  void exec_with(const Stmt& s);
  MarkedText capture(const Body& body);
  JinjaValue call_macro(const Macro& m, Args args);
  JinjaValue call_function(const std::string& name, Args args);
  void assign(const Target& target, const JinjaValue& value);
  void set(std::string_view name, JinjaValue value);
  void write(const MarkedText& text);
  const Macro* make_macro(const MacroBody& body);

  const Tree& tree_;
  const TemplateLimits limits_;
  const CivilTime now_;
  uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0, line_ = 0;
  MarkedText* out_ = nullptr;
  Scope* scope_ = nullptr;
  Scope globals_;
  std::vector<std::unique_ptr<Scope>> scopes_, kept_scopes_;
  std::deque<Macro> macros_;
  std::deque<LoopState> loops_;
  std::deque<Namespace> namespaces_;
};

// jinja_operators.cc: Python's operators.
JinjaValue binary(Evaluator& ev, Expr::Kind op, const JinjaValue& a, const JinjaValue& b);
JinjaValue slice(Evaluator& ev, const JinjaValue& v, const JinjaValue& start, const JinjaValue& stop, const JinjaValue& step);
// jinja_methods.cc: whether the type has a method of that name in Python, and its call.
bool has_method(const JinjaValue& self, std::string_view name);
bool is_unsafe_method(const JinjaValue& self, std::string_view name);  // changes its object: the sandbox refuses it
JinjaValue call_method(Evaluator& ev, const JinjaValue& self, const std::string& name, const Args& args);
// jinja_filters.cc, jinja_tests.cc.
JinjaValue apply_filter(Evaluator& ev, const std::string& name, JinjaValue input, const Args& args);
bool apply_test(Evaluator& ev, const std::string& name, const JinjaValue& value, const Args& args);
// jinja_format.cc: `text % args` and text.format(...).
MarkedText percent_format(const MarkedText& format, const JinjaValue& args);
MarkedText brace_format(Evaluator& ev, const MarkedText& format, const Args& args);
// jinja_strings.cc: Python's string methods over marked text.
MarkedText strip(const MarkedText& text, const JinjaValue* chars, bool left, bool right);
MarkedText replace(Evaluator& ev, const MarkedText& text, const MarkedText& from, const MarkedText& to, int64_t count);
std::vector<MarkedText> split(const MarkedText& text, const MarkedText* separator, int64_t max_splits, bool from_right);
std::vector<MarkedText> split_lines(const MarkedText& text, bool keep_ends = false);
MarkedText join(Evaluator& ev, const MarkedText& separator, const std::vector<JinjaValue>& items);
MarkedText escape_html(const MarkedText& text);
MarkedText repeat(Evaluator& ev, const MarkedText& text, int64_t times);
std::string format_time(const CivilTime& t, std::string_view format);

}  // namespace espalier::jinja
