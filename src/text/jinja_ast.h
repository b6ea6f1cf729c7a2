// The syntax tree of a template. Plain data, made by jinja_parser.cc and walked by jinja_eval.cc.
//
// Depth (of expressions and of statements) is bounded by the parser, so recursion over the tree is safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja_value.h"

namespace espalier::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Argument {
  enum class Kind { positional, named, star, double_star };
  Kind kind = Kind::positional;
  std::string name;
  ExprPtr value;
};

struct Expr {
  enum class Kind {
    constant,   // value
    name,       // name
    list,       // items
    tuple,      // items
    dict,       // items: key, value, key, value ...
    attribute,  // items[0].name
    item,       // items[0][items[1]]
    slice,      // items[0][items[1]:items[2]:items[3]], null where left out
    call,       // items[0](arguments)
    filter,     // items[0]|name(arguments); items[0] is null in a filter block
    test,       // items[0] is name(arguments)
    negate, plus, logical_not,                              // items[0]
    add, subtract, multiply, divide, floor_divide, modulo, power,  // items[0], items[1]
    logical_and, logical_or,                                // items[0], items[1]
    concat,                                                 // items ~ items ...
    compare,                                                // items[0] ops[0] items[1] ops[1] items[2] ...
    conditional,                                            // items[0] if items[1] else items[2] (may be null)
  };
  Kind kind;
  int line = 0;
  int depth = 1;
  std::string name;
  JinjaValue value;
  std::vector<ExprPtr> items;
  std::vector<std::string> ops;
  std::vector<Argument> arguments;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// What `set` and `for` assign to: a name, an attribute of a namespace, or several of them.
struct Target {
  std::string name;
  std::string attribute;  // of namespace `name`
  std::vector<Target> parts;
};

struct Parameter {
  std::string name;
  ExprPtr default_value;  // may be null
};

struct MacroBody {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  enum class Kind { text, print, if_, for_, set, set_block, macro, call_block, filter_block, with, scope, break_, continue_ };
  struct Branch {
    ExprPtr condition;  // null: else
    Body body;
  };
  Kind kind;
  int line = 0;
  JinjaValue text;               // text
  ExprPtr expr;                  // print, set, for_ (iterated), set_block and filter_block (filter, may be null), call_block
  ExprPtr condition;             // for_: the `if` after `in`
  Target target;                 // set, set_block, for_
  std::vector<std::pair<Target, ExprPtr>> bindings;  // with
  std::vector<Branch> branches;  // if_
  Body body, else_body;
  std::unique_ptr<MacroBody> macro;  // macro, call_block
};

struct Tree {
  Body body;
  std::vector<std::string> names;     // every name that is read, sorted, each once
  std::vector<std::string> literals;  // every text and string constant
};

// Names that exist; unknown ones are refused by the parser, or, under a condition, when they are reached.
bool filter_exists(std::string_view name);
bool test_exists(std::string_view name);

// Throws JinjaFailure with the line.
Tree parse_template(std::string_view source);

}  // namespace espalier::jinja
