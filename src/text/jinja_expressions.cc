// The values of a template's expressions. Statements, scopes and calls are in jinja_eval.cc.
#include <algorithm>

#include "text/jinja_eval.h"
#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

// A method that would change its object reads as undefined, as the sandbox has it; using it gives the error.
JinjaValue method(std::string_view name, const JinjaValue& self) {
  if (is_unsafe_method(self, name))
    return JinjaValue::undefined("access to '" + std::string(name) + "' of '" + type_name(self) +
                                 "' is refused: templates can't change lists and mappings");
  return JinjaValue::CallPtr(std::make_shared<Callable>(Callable{Callable::Kind::method, std::string(name), self}));
}

std::string described(const JinjaValue& object) {
  return object.is_none() ? "None" : object.is_namespace() ? "namespace object" : type_name(object) + " object";
}

JinjaValue no_attribute(const JinjaValue& object, std::string_view name) {
  return JinjaValue::undefined(std::string("'") + described(object) + "' has no attribute '" + std::string(name) + "'");
}

JinjaValue loop_attribute(const JinjaValue& object, std::string_view name) {
  const LoopState& l = *object.loop();
  const auto at = static_cast<int64_t>(l.index), count = static_cast<int64_t>(l.count);
  if (name == "index") return at + 1;
  if (name == "index0") return at;
  if (name == "revindex") return count - at;
  if (name == "revindex0") return count - at - 1;
  if (name == "first") return l.index == 0;
  if (name == "last") return at + 1 >= count;
  if (name == "length") return count;
  if (name == "depth") return l.depth;
  if (name == "depth0") return l.depth - 1;
  if (name == "previtem")
    return l.index > 0 && l.index <= l.items.size() ? l.items[l.index - 1] : JinjaValue::undefined("there is no previous item");
  if (name == "nextitem")
    return l.index + 1 < l.items.size() ? l.items[l.index + 1] : JinjaValue::undefined("there is no next item");
  if (name == "cycle" || name == "changed") return method(name, object);
  return no_attribute(object, name);
}

}  // namespace

JinjaValue Evaluator::eval_inner(const Expr& e) {
  switch (e.kind) {
    case Expr::Kind::constant: return e.value;
    case Expr::Kind::name: return eval_name(e.name);
    case Expr::Kind::list:
    case Expr::Kind::tuple: {
      std::vector<JinjaValue> items;
      for (const ExprPtr& item : e.items) items.push_back(eval(*item));
      return list(std::move(items), e.kind == Expr::Kind::list ? Seq::Kind::list : Seq::Kind::tuple);
    }
    case Expr::Kind::dict: return eval_dict(e);
    case Expr::Kind::attribute: {
      const JinjaValue object = eval(*e.items[0]);
      line_ = e.line;
      return attribute(object, e.name);
    }
    case Expr::Kind::item: {
      const JinjaValue object = eval(*e.items[0]);
      const JinjaValue key = eval(*e.items[1]);
      line_ = e.line;
      return item(object, key);
    }
    case Expr::Kind::slice: return eval_slice(e);
    case Expr::Kind::call: return eval_call(e);
    case Expr::Kind::filter: {
      JinjaValue input = eval(*e.items[0]);
      const Args args = eval_arguments(e);
      line_ = e.line;
      return filter(e.name, std::move(input), args);
    }
    case Expr::Kind::test: {
      const JinjaValue value = eval(*e.items[0]);
      const Args args = eval_arguments(e);
      line_ = e.line;
      return test(e.name, value, args);
    }
    case Expr::Kind::logical_not: return !truthy(eval(*e.items[0]));
    case Expr::Kind::logical_and: {
      JinjaValue a = eval(*e.items[0]);
      return truthy(a) ? eval(*e.items[1]) : a;
    }
    case Expr::Kind::logical_or: {
      JinjaValue a = eval(*e.items[0]);
      return truthy(a) ? a : eval(*e.items[1]);
    }
    case Expr::Kind::concat: return eval_concat(e);
    case Expr::Kind::compare: return eval_compare(e);
    case Expr::Kind::conditional:
      if (truthy(eval(*e.items[1]))) return eval(*e.items[0]);
      if (e.items[2]) return eval(*e.items[2]);
      return JinjaValue::undefined("the inline if-expression on line " + std::to_string(e.line) +
                                   " evaluated to false and no else section was defined");
    default: return eval_binary(e);
  }
}

JinjaValue Evaluator::eval_name(const std::string& name) {
  for (const Scope* s = scope_; s != nullptr; s = s->parent) {
    step(s->names.size() / 16);
    for (const auto& entry : s->names)
      if (entry.first == name) return entry.second;
  }
  return JinjaValue::undefined("'" + name + "' is undefined");
}

JinjaValue Evaluator::eval_dict(const Expr& e) {
  std::vector<std::pair<JinjaValue, JinjaValue>> items;
  for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
    const JinjaValue key = eval(*e.items[i]);
    JinjaValue value = eval(*e.items[i + 1]);
    line_ = e.line;
    check_hashable(key);
    const auto same = std::find_if(items.begin(), items.end(), [&](const auto& entry) { return equals(entry.first, key); });
    step(items.size() / 16);
    if (same != items.end())
      same->second = std::move(value);
    else
      items.emplace_back(key, std::move(value));
  }
  charge(items.size() * sizeof(items[0]) + sizeof(Dict));
  return JinjaValue::dict(std::move(items));
}

Args Evaluator::eval_arguments(const Expr& e) {
  Args args;
  for (const Argument& a : e.arguments) {
    JinjaValue v = eval(*a.value);
    switch (a.kind) {
      case Argument::Kind::positional: args.positional.push_back(std::move(v)); break;
      case Argument::Kind::named: args.named.emplace_back(a.name, std::move(v)); break;
      case Argument::Kind::star:
        for (JinjaValue& item : iterate_charged(v)) args.positional.push_back(std::move(item));
        break;
      case Argument::Kind::double_star:
        if (!v.is_dict()) fail("the argument after ** must be a mapping, found " + type_name(v));
        charge(v.dict().items.size() * sizeof(args.named[0]));
        for (const auto& [k, item] : v.dict().items) {
          if (!k.is_string()) fail("keywords must be strings");
          args.named.emplace_back(k.text(), item);
        }
    }
  }
  return args;
}

JinjaValue Evaluator::eval_call(const Expr& e) {
  const JinjaValue callee = eval(*e.items[0]);
  Args args = eval_arguments(e);
  line_ = e.line;
  JinjaValue result = call(callee, std::move(args));
  line_ = e.line;
  return result;
}

JinjaValue Evaluator::eval_compare(const Expr& e) {
  JinjaValue left = eval(*e.items[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    JinjaValue right = eval(*e.items[i + 1]);
    line_ = e.line;
    const std::string& op = e.ops[i];
    const size_t size = right.is_string() ? right.text().size() : right.is_seq() ? right.seq().items.size() : 0;
    step(size / 64);
    bool holds;
    if (op == "==") holds = equals(left, right);
    else if (op == "!=") holds = !equals(left, right);
    else if (op == "in") holds = contains(right, left);
    else if (op == "not in") holds = !contains(right, left);
    else {
      const int c = compare(left, right, op.c_str());
      // A NaN is neither below, equal nor above.
      const bool unordered = left.is_number() && right.is_number() && (left.as_double() != left.as_double() || right.as_double() != right.as_double());
      holds = !unordered && (op == "<" ? c < 0 : op == "<=" ? c <= 0 : op == ">" ? c > 0 : c >= 0);
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

JinjaValue Evaluator::eval_concat(const Expr& e) {
  MarkedText out;
  for (const ExprPtr& item : e.items) {
    const MarkedText piece = to_str(eval(*item));
    charge(piece.size());
    out.append(piece);
  }
  return string(std::move(out));
}

JinjaValue Evaluator::eval_slice(const Expr& e) {
  const JinjaValue object = eval(*e.items[0]);
  JinjaValue bounds[3];
  for (size_t i = 0; i < 3; ++i)
    if (e.items[i + 1]) bounds[i] = eval(*e.items[i + 1]);
  line_ = e.line;
  return slice(*this, object, bounds[0], bounds[1], bounds[2]);
}

JinjaValue Evaluator::eval_binary(const Expr& e) {
  const JinjaValue a = eval(*e.items[0]);
  const JinjaValue b = e.items.size() > 1 ? eval(*e.items[1]) : JinjaValue();
  line_ = e.line;
  return binary(*this, e.kind, a, b);
}

// The filters of a block: the innermost takes the block's text.
JinjaValue Evaluator::eval_filter_chain(const Expr* e, JinjaValue input) {
  if (e == nullptr) return input;
  input = eval_filter_chain(e->items[0].get(), std::move(input));
  const Args args = eval_arguments(*e);
  line_ = e->line;
  return filter(e->name, std::move(input), args);
}

JinjaValue Evaluator::filter(const std::string& name, JinjaValue input, const Args& args) {
  if (!filter_exists(name)) fail("no filter named '" + name + "'");
  return apply_filter(*this, name, std::move(input), args);
}

bool Evaluator::test(const std::string& name, const JinjaValue& value, const Args& args) {
  if (!test_exists(name)) fail("no test named '" + name + "'");
  return apply_test(*this, name, value, args);
}

JinjaValue Evaluator::attribute(const JinjaValue& object, std::string_view name) {
  if (object.is_undefined()) fail(object.as_undefined().hint);
  if (object.is_namespace()) {
    for (const auto& [k, v] : object.as_namespace()->attrs)
      if (k == name) return v;
    return no_attribute(object, name);
  }
  if (object.is_loop()) return loop_attribute(object, name);
  if (has_method(object, name)) return method(name, object);
  if (object.is_dict()) {
    step(object.dict().items.size() / 16);
    if (const JinjaValue* v = find(object.dict(), name)) return *v;
  }
  if (object.is_macro() && name == "name") return JinjaValue::control(object.macro()->body->name);
  return no_attribute(object, name);
}

JinjaValue Evaluator::item(const JinjaValue& object, const JinjaValue& key) {
  if (object.is_undefined()) fail(object.as_undefined().hint);
  if (object.is_dict()) {
    step(object.dict().items.size() / 16);
    const bool hashable = !key.is_dict() && !key.is_seq(Seq::Kind::list);
    if (const JinjaValue* v = hashable ? find(object.dict(), key) : nullptr) return *v;
  } else if (key.is_integral() && object.is_seq() && object.seq().kind <= Seq::Kind::range) {
    const auto& items = object.seq().items;
    const int64_t n = static_cast<int64_t>(items.size()), i = key.as_int();
    if (i >= -n && i < n) return items[static_cast<size_t>(i < 0 ? i + n : i)];
  } else if (key.is_integral() && object.is_string()) {
    step(object.text().size() / 16);
    const std::vector<size_t> at = code_point_offsets(object.text());
    const int64_t n = static_cast<int64_t>(at.size()) - 1, i = key.as_int();
    if (i >= -n && i < n) {
      const size_t k = static_cast<size_t>(i < 0 ? i + n : i);
      return string(object.marked().substr(at[k], at[k + 1] - at[k]), object.str().markup);
    }
  }
  if (key.is_string() && !object.is_dict()) return attribute(object, key.text());
  if (key.is_string()) {
    if (!has_method(object, key.text())) return no_attribute(object, key.text());
    return method(key.text(), object);
  }
  if (key.is_undefined()) return JinjaValue::undefined(described(object) + " has no element Undefined");
  return JinjaValue::undefined(described(object) + " has no element " + to_repr(key).text());
}

}  // namespace espalier::jinja
