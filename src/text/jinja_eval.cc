#include "text/jinja_eval.h"

#include <algorithm>

#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

// Of eval, exec and macro calls together. A level costs about a kilobyte of stack in a sanitizer build.
constexpr int kMaxRecursion = 1200;
constexpr size_t kMaxTextBytes = size_t{64} << 20;

constexpr std::string_view kFunctions[] = {"raise_exception", "strftime_now", "namespace", "range", "dict"};

JinjaValue function(std::string_view name) {
  return JinjaValue::CallPtr(std::make_shared<Callable>(Callable{Callable::Kind::function, std::string(name), {}}));
}

}  // namespace

// ---- arguments of built-ins

Bound::Bound(std::string_view what, const Args& args, std::initializer_list<std::string_view> parameters)
    : what_(what), parameters_(parameters), found_(parameters.size(), nullptr) {
  if (args.positional.size() > parameters_.size())
    fail(what_ + " takes at most " + std::to_string(parameters_.size()) + " arguments, found " +
         std::to_string(args.positional.size()));
  for (size_t i = 0; i < args.positional.size(); ++i) found_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(parameters_.begin(), parameters_.end(), name);
    if (it == parameters_.end()) fail(what_ + " has no parameter '" + name + "'");
    const JinjaValue*& slot = found_[static_cast<size_t>(it - parameters_.begin())];
    if (slot != nullptr) fail(what_ + " got the parameter '" + name + "' twice");
    slot = &value;
  }
}

const JinjaValue& Bound::need(size_t i) const {
  if (found_[i] == nullptr) fail(what_ + " needs the argument '" + std::string(parameters_[i]) + "'");
  return *found_[i];
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (found_[i] == nullptr) return otherwise;
  if (found_[i]->is_undefined()) fail(found_[i]->as_undefined().hint);
  if (!found_[i]->is_integral())
    fail(what_ + ": '" + std::string(parameters_[i]) + "' must be an integer, found " + type_name(*found_[i]));
  return found_[i]->as_int();
}

bool Bound::flag(size_t i, bool otherwise) const { return found_[i] == nullptr ? otherwise : truthy(*found_[i]); }

// ---- the evaluator

struct Evaluator::DepthGuard {
  Evaluator& ev;
  explicit DepthGuard(Evaluator& e) : ev(e) {
    if (++ev.depth_ > kMaxRecursion) {
      --ev.depth_;
      fail("the template nests calls and expressions more than " + std::to_string(kMaxRecursion) + " levels");
    }
  }
  ~DepthGuard() { --ev.depth_; }
};

// Opens a scope below `parent` and goes back to the scope that was current.
struct Evaluator::ScopeGuard {
  Evaluator& ev;
  Scope* before;
  ScopeGuard(Evaluator& e, Scope* parent) : ev(e), before(e.scope_) {
    ev.scopes_.push_back(std::make_unique<Scope>());
    ev.scope_ = ev.scopes_.back().get();
    ev.scope_->parent = parent;
  }
  ~ScopeGuard() {
    if (ev.scopes_.back()->captured) ev.kept_scopes_.push_back(std::move(ev.scopes_.back()));
    ev.scopes_.pop_back();
    ev.scope_ = before;
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
};

Evaluator::Evaluator(const Tree& tree, const TemplateLimits& limits, const CivilTime& now)
    : tree_(tree), limits_(limits), now_(now) {
  for (std::string_view name : kFunctions) globals_.names.emplace_back(name, function(name));
  scope_ = &globals_;
}

void Evaluator::define(std::string_view name, JinjaValue value) {
  for (auto& entry : globals_.names) {
    if (entry.first != name) continue;
    entry.second = std::move(value);
    return;
  }
  globals_.names.emplace_back(name, std::move(value));
}

void Evaluator::charge(size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > limits_.bytes)
    fail("the template makes more than " + std::to_string(limits_.bytes >> 20) + " MiB of text and lists; it was stopped");
}

void Evaluator::step(size_t n) {
  steps_ += n;
  if (steps_ > limits_.steps)
    fail("the template takes more than " + std::to_string(limits_.steps) + " steps; it was stopped");
}

JinjaValue Evaluator::string(MarkedText text, bool markup) {
  if (text.size() > kMaxTextBytes) fail("a string is longer than 64 MiB");
  charge(text.size() + text.runs().size() * sizeof(MarkedText::Run) + sizeof(Str));
  return JinjaValue(std::move(text), markup);
}

JinjaValue Evaluator::list(std::vector<JinjaValue> items, Seq::Kind kind) {
  charge(items.size() * sizeof(JinjaValue) + sizeof(Seq));
  step(items.size() / 8);
  return JinjaValue::list(std::move(items), kind);
}

std::vector<JinjaValue> Evaluator::iterate_charged(const JinjaValue& v) {
  const size_t n = v.is_seq() ? v.seq().items.size() : v.is_dict() ? v.dict().items.size() : v.is_string() ? v.text().size() : 0;
  charge(n * (v.is_string() ? 128 : sizeof(JinjaValue)));
  // Each character of a string is cut out of its runs, so both numbers count.
  step(v.is_string() ? n / 8 * (1 + v.marked().runs().size() / 8) : n / 8);
  return iterate(v);
}

Namespace* Evaluator::make_namespace() {
  charge(sizeof(Namespace));
  return &namespaces_.emplace_back();
}

MarkedText Evaluator::run() {
  MarkedText out;
  out_ = &out;
  try {
    ScopeGuard root(*this, &globals_);
    exec(tree_.body);
  } catch (JinjaFailure& f) {
    if (f.line == 0) f.line = line_;
    throw;
  }
  return out;
}

void Evaluator::write(const MarkedText& text) {
  charge(text.size());
  if (out_->size() + text.size() > kMaxTextBytes) fail("the rendered text is longer than 64 MiB");
  out_->append(text);
}

MarkedText Evaluator::capture(const Body& body) {
  MarkedText text;
  MarkedText* const before = std::exchange(out_, &text);
  try {
    exec(body);
  } catch (...) {
    out_ = before;
    throw;
  }
  out_ = before;
  return text;
}

void Evaluator::set(std::string_view name, JinjaValue value) {
  for (auto& entry : scope_->names) {
    if (entry.first != name) continue;
    entry.second = std::move(value);
    return;
  }
  charge(sizeof(scope_->names[0]));
  scope_->names.emplace_back(name, std::move(value));
}

void Evaluator::assign(const Target& target, const JinjaValue& value) {
  if (!target.parts.empty()) {
    if (value.is_undefined()) fail(value.as_undefined().hint);
    const std::vector<JinjaValue> items = iterate_charged(value);
    if (items.size() != target.parts.size())
      fail("expected " + std::to_string(target.parts.size()) + " values to unpack, found " + std::to_string(items.size()));
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return set(target.name, value);
  const JinjaValue object = eval_name(target.name);
  if (!object.is_namespace()) fail("cannot assign attribute '" + target.attribute + "' on a value that is no namespace");
  if (target.attribute[0] == '_') fail("a namespace can't hold the name '" + target.attribute + "': it starts with an underscore");
  auto& attrs = object.as_namespace()->attrs;
  for (auto& entry : attrs) {
    if (entry.first != target.attribute) continue;
    entry.second = value;
    return;
  }
  charge(sizeof(attrs[0]));
  attrs.emplace_back(target.attribute, value);
}

// ---- statements

Evaluator::Flow Evaluator::exec(const Body& body) {
  for (const StmtPtr& s : body) {
    const Flow flow = exec_one(*s);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Evaluator::Flow Evaluator::exec_one(const Stmt& s) {
  DepthGuard depth(*this);
  step();
  line_ = s.line;
  switch (s.kind) {
    case Stmt::Kind::text: write(s.text.marked()); break;
    case Stmt::Kind::print: {
      const JinjaValue v = eval(*s.expr);
      line_ = s.line;
      write(to_str(v));
      break;
    }
    case Stmt::Kind::if_: return exec_if(s);
    case Stmt::Kind::for_: return exec_for(s);
    case Stmt::Kind::set: {
      const JinjaValue v = eval(*s.expr);
      line_ = s.line;
      assign(s.target, v);
      break;
    }
    case Stmt::Kind::set_block: {
      JinjaValue v;
      {
        ScopeGuard scope(*this, scope_);
        v = eval_filter_chain(s.expr.get(), string(capture(s.body)));
      }
      assign(s.target, v);
      break;
    }
    case Stmt::Kind::filter_block: {
      ScopeGuard scope(*this, scope_);
      write(to_str(eval_filter_chain(s.expr.get(), string(capture(s.body)))));
      break;
    }
    case Stmt::Kind::macro: exec_macro(s); break;
    case Stmt::Kind::call_block: exec_call_block(s); break;
    case Stmt::Kind::with: exec_with(s); break;
    case Stmt::Kind::scope: {
      ScopeGuard scope(*this, scope_);
      return exec(s.body);
    }
    case Stmt::Kind::break_: return Flow::break_;
    case Stmt::Kind::continue_: return Flow::continue_;
  }
  return Flow::next;
}

Evaluator::Flow Evaluator::exec_if(const Stmt& s) {
  for (const Stmt::Branch& b : s.branches)
    if (!b.condition || truthy(eval(*b.condition))) return exec(b.body);
  return Flow::next;
}

Evaluator::Flow Evaluator::exec_for(const Stmt& s) {
  const JinjaValue iterated = eval(*s.expr);
  line_ = s.line;
  std::vector<JinjaValue> items = iterate_charged(iterated);
  if (s.condition) {
    std::vector<JinjaValue> kept;
    for (JinjaValue& v : items) {
      step();
      ScopeGuard scope(*this, scope_);
      assign(s.target, v);
      if (truthy(eval(*s.condition))) kept.push_back(std::move(v));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    ScopeGuard scope(*this, scope_);
    return exec(s.else_body);
  }
  charge(sizeof(LoopState));
  LoopState& loop = loops_.emplace_back();
  loop.items = std::move(items);
  loop.count = loop.items.size();
  for (loop.index = 0; loop.index < loop.count; ++loop.index) {
    step();
    ScopeGuard scope(*this, scope_);
    set("loop", &loop);
    line_ = s.line;
    assign(s.target, loop.items[loop.index]);
    if (exec(s.body) == Flow::break_) break;
  }
  if (loop.index == loop.count) --loop.index;  // what a loop kept in a namespace says of itself later
  loop.items = {};
  return Flow::next;
}

const Macro* Evaluator::make_macro(const MacroBody& body) {
  charge(sizeof(Macro));
  for (Scope* s = scope_; s != nullptr && !s->captured; s = s->parent) s->captured = true;
  return &macros_.emplace_back(Macro{&body, scope_});
}

void Evaluator::exec_macro(const Stmt& s) { set(s.macro->name, make_macro(*s.macro)); }

void Evaluator::exec_call_block(const Stmt& s) {
  const JinjaValue callee = eval(*s.expr->items[0]);
  Args args = eval_arguments(*s.expr);
  args.named.emplace_back("caller", make_macro(*s.macro));
  line_ = s.line;
  write(to_str(call(callee, std::move(args))));
}

void Evaluator::exec_with(const Stmt& s) {
  std::vector<JinjaValue> values;
  for (const auto& binding : s.bindings) values.push_back(eval(*binding.second));
  ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(s.bindings[i].first, values[i]);
  exec(s.body);
}

// ---- calls

JinjaValue Evaluator::call_macro(const Macro& m, Args args) {
  DepthGuard depth(*this);
  const MacroBody& body = *m.body;
  ScopeGuard scope(*this, m.scope);
  const size_t count = body.parameters.size();
  std::vector<bool> given(count, false);
  for (size_t i = 0; i < std::min(count, args.positional.size()); ++i) {
    set(body.parameters[i].name, args.positional[i]);
    given[i] = true;
  }
  std::vector<std::pair<JinjaValue, JinjaValue>> rest;
  for (auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < count && body.parameters[i].name != name) ++i;
    if (i < count && given[i]) fail("macro '" + body.name + "' got the argument '" + name + "' twice");
    if (i < count) {
      set(body.parameters[i].name, value);
      given[i] = true;
    } else if (name == "caller" && body.uses_caller) {
      set("caller", value);
    } else if (body.uses_kwargs) {
      rest.emplace_back(JinjaValue::data(name), value);
    } else {
      fail("macro '" + body.name + "' takes no keyword argument '" + name + "'");
    }
  }
  if (args.positional.size() > count && !body.uses_varargs)
    fail("macro '" + body.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  for (size_t i = 0; i < count; ++i) {
    if (given[i]) continue;
    const Parameter& p = body.parameters[i];
    set(p.name, p.default_value ? eval(*p.default_value)
                                : JinjaValue::undefined("parameter '" + p.name + "' was not provided"));
  }
  if (body.uses_varargs) {
    std::vector<JinjaValue> more;
    for (size_t i = count; i < args.positional.size(); ++i) more.push_back(args.positional[i]);
    set("varargs", list(std::move(more), Seq::Kind::tuple));
  }
  if (body.uses_kwargs) set("kwargs", JinjaValue::dict(std::move(rest)));
  return string(capture(body.body));
}

JinjaValue Evaluator::call(const JinjaValue& callee, Args args) {
  if (callee.is_macro()) return call_macro(*callee.macro(), std::move(args));
  if (callee.is_undefined()) fail(callee.as_undefined().hint);
  if (!callee.is_callable()) fail(std::string("'") + type_name(callee) + "' object is not callable");
  const Callable& c = callee.callable();
  if (c.kind == Callable::Kind::function) return call_function(c.name, std::move(args));
  return call_method(*this, c.self, c.name, args);
}

JinjaValue Evaluator::call_function(const std::string& name, Args args) {
  if (name == "raise_exception") {
    const Bound b(name, args, {"message"});
    fail("the template refuses this conversation: " + to_str(b.need(0)).text());
  }
  if (name == "strftime_now") {
    const Bound b(name, args, {"format"});
    return string(MarkedText(format_time(now_, to_str(b.need(0)).text()), Origin::data));
  }
  if (name == "range") {
    const Bound b(name, args, {"start", "stop", "step"});
    const bool one = b.get(1) == nullptr;
    const int64_t start = one ? 0 : b.integer(0, 0);
    const int64_t stop = one ? (b.need(0), b.integer(0, 0)) : b.integer(1, 0);
    const int64_t by = b.integer(2, 1);
    if (by == 0) fail("range() arg 3 must not be zero");
    constexpr int64_t kMaxRange = 100000;  // the sandbox's own limit
    std::vector<JinjaValue> items;
    for (__int128 i = start; by > 0 ? i < stop : i > stop; i += by) {
      if (items.size() >= kMaxRange) fail("range is too big: at most 100000 items");
      items.emplace_back(static_cast<int64_t>(i));
    }
    return list(std::move(items), Seq::Kind::range);
  }
  // namespace(...) and dict(...): pairs or a mapping, then names.
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  const auto put = [&](const JinjaValue& key, const JinjaValue& value) {
    step(entries.size() / 16);
    for (auto& e : entries)
      if (equals(e.first, key)) return void(e.second = value);
    entries.emplace_back(key, value);
  };
  if (args.positional.size() > 1) fail(name + " takes at most 1 positional argument");
  for (const JinjaValue& v : args.positional) {
    if (v.is_dict()) {
      for (const auto& [k, e] : v.dict().items) put(k, e);
    } else {
      for (const JinjaValue& pair : iterate_charged(v)) {
        const std::vector<JinjaValue> kv = iterate_charged(pair);
        if (kv.size() != 2) fail(name + " needs pairs of key and value");
        check_hashable(kv[0]);
        put(kv[0], kv[1]);
      }
    }
  }
  for (const auto& [k, v] : args.named) put(JinjaValue::control(k), v);
  charge(entries.size() * sizeof(entries[0]));
  if (name == "dict") return JinjaValue::dict(std::move(entries));
  Namespace* n = make_namespace();
  for (const auto& [k, v] : entries) {
    if (!k.is_string()) fail("a namespace needs names, found " + type_name(k));
    if (!k.text().empty() && k.text()[0] == '_') fail("a namespace can't hold the name '" + k.text() + "': it starts with an underscore");
    n->attrs.emplace_back(k.text(), v);
  }
  return n;
}

// ---- expressions

JinjaValue Evaluator::eval(const Expr& e) {
  DepthGuard depth(*this);
  step();
  return eval_inner(e);
}

}  // namespace espalier::jinja
