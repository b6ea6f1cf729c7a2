// Goals: jinja2's grammar as chat templates use it; each failure names its line.
// Non-goals: inheritance, includes and imports (a chat template is one file), autoescape, `do`.
#include <algorithm>
#include <initializer_list>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace espalier::jinja {
namespace {

constexpr int kMaxNesting = 120;     // of the parser's own recursion: brackets, statements
constexpr int kMaxExprDepth = 400;   // of the tree: a chain a + b + c ... is as deep as it is long

using K = Expr::Kind;
using T = Token::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Tree run() {
    tree_.body = subparse({});
    std::sort(tree_.names.begin(), tree_.names.end());
    tree_.names.erase(std::unique(tree_.names.begin(), tree_.names.end()), tree_.names.end());
    return std::move(tree_);
  }

 private:
  // Counts the levels of recursion; every cycle of the grammar passes through one.
  struct Level {
    Parser& p;
    explicit Level(Parser& parser) : p(parser) {
      if (++p.nesting_ > kMaxNesting) p.error("nested more than " + std::to_string(kMaxNesting) + " levels");
    }
    ~Level() { --p.nesting_; }
  };

  // ---- tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool is_op(std::string_view op) const { return now().kind == T::op && now().text == op; }
  bool is_name(std::string_view name) const { return now().kind == T::name && now().text == name; }
  bool skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    next();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
  }
  [[noreturn]] void error(std::string message) const { throw JinjaFailure{std::move(message), now().line}; }
  std::string describe() const {
    switch (now().kind) {
      case T::data: return "template text";
      case T::variable_begin: return "'{{'";
      case T::variable_end: return "'}}'";
      case T::block_begin: return "'{%'";
      case T::block_end: return "'%}'";
      case T::string: return "a string";
      case T::integer:
      case T::floating: return "a number";
      case T::end: return "the end of the template";
      default: return "'" + now().text + "'";
    }
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) error("expected '" + std::string(op) + "', found " + describe());
  }
  std::string expect_name() {
    if (now().kind != T::name) error("expected a name, found " + describe());
    std::string name = now().text;
    next();
    return name;
  }
  void expect(T kind, const char* what) {
    if (now().kind != kind) error(std::string("expected ") + what + ", found " + describe());
    next();
  }

  // ---- nodes
  ExprPtr node(K kind, int line) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    return e;
  }
  ExprPtr node(K kind, int line, ExprPtr a, ExprPtr b = nullptr, ExprPtr c = nullptr) const {
    ExprPtr e = node(kind, line);
    add(*e, std::move(a));
    if (b) add(*e, std::move(b));
    if (c) add(*e, std::move(c));
    return e;
  }
  void deepen(Expr& e, const ExprPtr& item) const {
    if (!item) return;
    e.depth = std::max(e.depth, item->depth + 1);
    if (e.depth > kMaxExprDepth) error("an expression of more than " + std::to_string(kMaxExprDepth) + " levels");
  }
  void add(Expr& e, ExprPtr item) const {
    deepen(e, item);
    e.items.push_back(std::move(item));
  }
  ExprPtr constant(JinjaValue v, int line) const {
    ExprPtr e = node(K::constant, line);
    e->value = std::move(v);
    return e;
  }
  StmtPtr stmt(Stmt::Kind kind, int line) const {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = line;
    return s;
  }

  // ---- statements
  bool at_any(std::initializer_list<std::string_view> names) const {
    return std::any_of(names.begin(), names.end(), [&](std::string_view n) { return is_name(n); });
  }

  Body subparse(std::initializer_list<std::string_view> end_names) {
    Level level(*this);
    Body body;
    while (now().kind != T::end) {
      const int line = now().line;
      if (now().kind == T::data) {
        StmtPtr s = stmt(Stmt::Kind::text, line);
        s->text = JinjaValue::control(now().text);
        tree_.literals.push_back(now().text);
        body.push_back(std::move(s));
        next();
      } else if (now().kind == T::variable_begin) {
        next();
        StmtPtr s = stmt(Stmt::Kind::print, line);
        s->expr = parse_tuple(true);
        expect(T::variable_end, "'}}'");
        body.push_back(std::move(s));
      } else {
        expect(T::block_begin, "'{%'");
        if (at_any(end_names)) return body;
        StmtPtr s = parse_statement();
        expect(T::block_end, "'%}'");
        if (s) body.push_back(std::move(s));
      }
    }
    if (end_names.size() != 0) {
      std::string wanted;
      for (std::string_view n : end_names) wanted += (wanted.empty() ? "'" : " or '") + std::string(n) + "'";
      error("the template ends where " + wanted + " is missing");
    }
    return body;
  }

  // The body up to one of the names; the name itself stays the current token.
  Body parse_body(std::initializer_list<std::string_view> end_names) {
    skip_op(":");
    expect(T::block_end, "'%}'");
    return subparse(end_names);
  }

  StmtPtr parse_statement() {
    if (now().kind != T::name) error("expected the name of a tag, found " + describe());
    const int line = now().line;
    const std::string tag = now().text;
    if (tag == "if") return parse_if();
    if (tag == "for") return parse_for();
    if (tag == "set") return parse_set();
    next();
    if (tag == "macro") return parse_macro(line);
    if (tag == "call") return parse_call_block(line);
    if (tag == "filter") return parse_filter_block(line);
    if (tag == "with") return parse_with(line);
    if (tag == "generation") {  // marks what the model wrote, for training; the text is the same
      StmtPtr s = stmt(Stmt::Kind::scope, line);
      s->body = parse_body({"endgeneration"});
      next();
      return s;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) throw JinjaFailure{"'" + tag + "' outside of a loop", line};
      return stmt(tag == "break" ? Stmt::Kind::break_ : Stmt::Kind::continue_, line);
    }
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends" || tag == "block" || tag == "autoescape")
      throw JinjaFailure{"the tag '" + tag + "' is not supported: a chat template must stand alone", line};
    throw JinjaFailure{"unknown tag '" + tag + "'", line};
  }

  StmtPtr parse_if() {
    StmtPtr s = stmt(Stmt::Kind::if_, now().line);
    next();
    ++conditional_;
    while (true) {
      ExprPtr condition = parse_tuple(false);
      Body body = parse_body({"elif", "else", "endif"});
      s->branches.push_back({std::move(condition), std::move(body)});
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        Body rest = parse_body({"endif"});
        s->branches.push_back({nullptr, std::move(rest)});
      }
      next();
      --conditional_;
      return s;
    }
  }

  StmtPtr parse_for() {
    StmtPtr s = stmt(Stmt::Kind::for_, now().line);
    next();
    s->target = parse_target(false, "in");
    if (!skip_name("in")) error("expected 'in', found " + describe());
    s->expr = parse_tuple(false, "recursive");
    if (skip_name("if")) s->condition = parse_expression(true);
    if (is_name("recursive")) error("recursive loops are not supported");
    ++loops_;
    s->body = parse_body({"endfor", "else"});
    --loops_;
    if (skip_name("else")) s->else_body = parse_body({"endfor"});
    next();
    return s;
  }

  Target parse_target(bool with_namespace, std::string_view end_name = {}) {
    Level level(*this);
    const int line = now().line;
    std::vector<Target> parts;
    bool tuple = false;
    while (true) {
      if (tuple && (now().kind == T::block_end || is_op("=") || is_op(")") || (!end_name.empty() && is_name(end_name)))) break;
      if (skip_op("(")) {
        parts.push_back(parse_target(with_namespace));
        expect_op(")");
      } else {
        Target t;
        t.name = expect_name();
        if (with_namespace && skip_op(".")) t.attribute = expect_name();
        static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
        if (std::find(std::begin(kReserved), std::end(kReserved), t.name) != std::end(kReserved))
          throw JinjaFailure{"can't assign to '" + t.name + "'", line};
        parts.push_back(std::move(t));
      }
      if (!skip_op(",")) break;
      tuple = true;
    }
    if (!tuple) return std::move(parts[0]);
    Target all;
    all.parts = std::move(parts);
    return all;
  }

  StmtPtr parse_set() {
    StmtPtr s = stmt(Stmt::Kind::set, now().line);
    next();
    s->target = parse_target(true);
    if (skip_op("=")) {
      s->expr = parse_tuple(true);
      return s;
    }
    s->kind = Stmt::Kind::set_block;
    s->expr = parse_filters(nullptr);
    s->body = isolated_body({"endset"});
    next();
    return s;
  }

  // A body that becomes a function or a value of its own: a loop outside it can't be left from inside.
  Body isolated_body(std::initializer_list<std::string_view> end_names) {
    const int loops = std::exchange(loops_, 0);
    Body body = parse_body(end_names);
    loops_ = loops;
    return body;
  }

  void parse_parameters(MacroBody& m) {
    expect_op("(");
    while (!is_op(")")) {
      if (!m.parameters.empty()) expect_op(",");
      if (is_op(")")) error("expected a name, found ')'");
      Parameter p;
      p.name = expect_name();
      if (skip_op("="))
        p.default_value = parse_expression(true);
      else if (!m.parameters.empty() && m.parameters.back().default_value)
        error("a parameter without a default follows one with a default");
      m.parameters.push_back(std::move(p));
    }
    next();
  }

  void parse_macro_body(MacroBody& m, std::string_view end_name) {
    const size_t first = tree_.names.size();
    m.body = isolated_body({end_name});
    next();
    for (size_t i = first; i < tree_.names.size(); ++i) {
      m.uses_varargs |= tree_.names[i] == "varargs";
      m.uses_kwargs |= tree_.names[i] == "kwargs";
      m.uses_caller |= tree_.names[i] == "caller";
    }
  }

  StmtPtr parse_macro(int line) {
    StmtPtr s = stmt(Stmt::Kind::macro, line);
    s->macro = std::make_unique<MacroBody>();
    s->macro->name = expect_name();
    parse_parameters(*s->macro);
    parse_macro_body(*s->macro, "endmacro");
    return s;
  }

  StmtPtr parse_call_block(int line) {
    StmtPtr s = stmt(Stmt::Kind::call_block, line);
    s->macro = std::make_unique<MacroBody>();
    s->macro->name = "caller";
    if (is_op("(")) parse_parameters(*s->macro);
    s->expr = parse_expression(true);
    if (s->expr->kind != K::call) throw JinjaFailure{"expected a call after 'call'", line};
    parse_macro_body(*s->macro, "endcall");
    return s;
  }

  StmtPtr parse_filter_block(int line) {
    StmtPtr s = stmt(Stmt::Kind::filter_block, line);
    s->expr = parse_filters(nullptr, true);
    s->body = isolated_body({"endfilter"});
    next();
    return s;
  }

  StmtPtr parse_with(int line) {
    StmtPtr s = stmt(Stmt::Kind::with, line);
    while (now().kind != T::block_end) {
      if (!s->bindings.empty()) expect_op(",");
      Target t = parse_target(false);
      expect_op("=");
      s->bindings.emplace_back(std::move(t), parse_expression(true));
    }
    s->body = parse_body({"endwith"});
    next();
    return s;
  }

  // ---- expressions
  // `with_condition`: may be `a if b else c`.
  ExprPtr parse_expression(bool with_condition) {
    Level level(*this);
    if (!with_condition) return parse_or();
    const int line = now().line;
    // jinja2 refuses unknown filters and tests when it compiles, except under a condition. Whether a condition follows is
    // known only at the end of the expression, so the failures are held until then.
    const size_t held = unknown_.size();
    ++conditional_;
    ExprPtr e = parse_or();
    while (skip_name("if")) {
      ExprPtr condition = parse_or();
      ExprPtr other = skip_name("else") ? parse_expression(true) : nullptr;
      ExprPtr whole = node(K::conditional, line, std::move(e), std::move(condition));
      add(*whole, std::move(other));
      e = std::move(whole);
    }
    --conditional_;
    if (conditional_ == 0 && e->kind != K::conditional && unknown_.size() > held) throw unknown_[held];
    if (conditional_ == 0) unknown_.resize(held);
    return e;
  }

  ExprPtr parse_or() {
    const int line = now().line;
    ExprPtr left = parse_and();
    while (skip_name("or")) left = node(K::logical_or, line, std::move(left), parse_and());
    return left;
  }
  ExprPtr parse_and() {
    const int line = now().line;
    ExprPtr left = parse_not();
    while (skip_name("and")) left = node(K::logical_and, line, std::move(left), parse_not());
    return left;
  }
  ExprPtr parse_not() {
    const int line = now().line;
    int nots = 0;
    while (skip_name("not")) ++nots;
    ExprPtr e = parse_compare();
    for (; nots > 0; --nots) e = node(K::logical_not, line, std::move(e));
    return e;
  }
  ExprPtr parse_compare() {
    const int line = now().line;
    ExprPtr first = parse_math1();
    ExprPtr whole;
    while (true) {
      std::string op;
      if (now().kind == T::op && (is_op("==") || is_op("!=") || is_op("<") || is_op("<=") || is_op(">") || is_op(">="))) {
        op = now().text;
      } else if (is_name("in")) {
        op = "in";
      } else if (is_name("not") && look().kind == T::name && look().text == "in") {
        op = "not in";
        next();
      } else {
        return whole ? std::move(whole) : std::move(first);
      }
      next();
      if (!whole) whole = node(K::compare, line, std::move(first));
      add(*whole, parse_math1());
      whole->ops.push_back(std::move(op));
    }
  }
  ExprPtr parse_math1() {
    ExprPtr left = parse_concat();
    while (is_op("+") || is_op("-")) {
      const int line = now().line;
      const K kind = is_op("+") ? K::add : K::subtract;
      next();
      left = node(kind, line, std::move(left), parse_concat());
    }
    return left;
  }
  ExprPtr parse_concat() {
    const int line = now().line;
    ExprPtr first = parse_math2();
    if (!is_op("~")) return first;
    ExprPtr all = node(K::concat, line, std::move(first));
    while (skip_op("~")) add(*all, parse_math2());
    return all;
  }
  ExprPtr parse_math2() {
    ExprPtr left = parse_pow();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
      const int line = now().line;
      const K kind = is_op("*") ? K::multiply : is_op("/") ? K::divide : is_op("//") ? K::floor_divide : K::modulo;
      next();
      left = node(kind, line, std::move(left), parse_pow());
    }
    return left;
  }
  ExprPtr parse_pow() {
    ExprPtr left = parse_unary(true);
    while (is_op("**")) {
      const int line = now().line;
      next();
      left = node(K::power, line, std::move(left), parse_unary(true));
    }
    return left;
  }
  ExprPtr parse_unary(bool with_filter) {
    Level level(*this);
    const int line = now().line;
    ExprPtr e;
    if (skip_op("-"))
      e = node(K::negate, line, parse_unary(false));
    else if (skip_op("+"))
      e = node(K::plus, line, parse_unary(false));
    else
      e = parse_primary();
    e = parse_postfix(std::move(e));
    return with_filter ? parse_filter_expr(std::move(e)) : std::move(e);
  }

  ExprPtr parse_primary() {
    const Token& t = now();
    const int line = t.line;
    if (t.kind == T::name) {
      ExprPtr e;
      if (t.text == "true" || t.text == "True") {
        e = constant(true, line);
      } else if (t.text == "false" || t.text == "False") {
        e = constant(false, line);
      } else if (t.text == "none" || t.text == "None") {
        e = constant({}, line);
      } else {
        e = node(K::name, line);
        e->name = t.text;
        tree_.names.push_back(t.text);
      }
      next();
      return e;
    }
    if (t.kind == T::string) {
      std::string all;
      for (; now().kind == T::string; next()) all += now().text;
      tree_.literals.push_back(all);
      return constant(JinjaValue::control(all), line);
    }
    if (t.kind == T::integer || t.kind == T::floating) {
      ExprPtr e = t.kind == T::integer ? constant(t.integer, line) : constant(t.floating, line);
      next();
      return e;
    }
    if (skip_op("(")) {
      ExprPtr e = parse_tuple(true, {}, true);
      expect_op(")");
      return e;
    }
    if (is_op("[")) return parse_list();
    if (is_op("{")) return parse_dict();
    error("unexpected " + describe());
  }

  bool tuple_ends(std::string_view end_name) const {
    return now().kind == T::variable_end || now().kind == T::block_end || is_op(")") || (!end_name.empty() && is_name(end_name));
  }

  ExprPtr parse_tuple(bool with_condition, std::string_view end_name = {}, bool in_parentheses = false) {
    const int line = now().line;
    std::vector<ExprPtr> items;
    bool tuple = false;
    while (!tuple_ends(end_name)) {
      items.push_back(parse_expression(with_condition));
      if (!skip_op(",")) break;
      tuple = true;
    }
    if (!tuple && !items.empty()) return std::move(items[0]);
    if (!tuple && !in_parentheses) error("expected an expression, found " + describe());
    ExprPtr e = node(K::tuple, line);
    for (ExprPtr& item : items) add(*e, std::move(item));
    return e;
  }

  ExprPtr parse_list() {
    ExprPtr e = node(K::list, now().line);
    next();
    while (!is_op("]")) {
      if (!e->items.empty()) expect_op(",");
      if (is_op("]")) break;
      add(*e, parse_expression(true));
    }
    next();
    return e;
  }

  ExprPtr parse_dict() {
    ExprPtr e = node(K::dict, now().line);
    next();
    while (!is_op("}")) {
      if (!e->items.empty()) expect_op(",");
      if (is_op("}")) break;
      add(*e, parse_expression(true));
      expect_op(":");
      add(*e, parse_expression(true));
    }
    next();
    return e;
  }

  ExprPtr parse_postfix(ExprPtr e) {
    while (true) {
      if (is_op(".") || is_op("["))
        e = parse_subscript(std::move(e));
      else if (is_op("("))
        e = parse_call(std::move(e));
      else
        return e;
    }
  }

  ExprPtr parse_filter_expr(ExprPtr e) {
    while (true) {
      if (is_op("|"))
        e = parse_filters(std::move(e));
      else if (is_name("is"))
        e = parse_test(std::move(e));
      else if (is_op("("))
        e = parse_call(std::move(e));
      else
        return e;
    }
  }

  ExprPtr parse_subscript(ExprPtr object) {
    const int line = now().line;
    if (skip_op(".")) {
      if (now().kind == T::integer) {
        ExprPtr index = constant(now().integer, line);
        next();
        return node(K::item, line, std::move(object), std::move(index));
      }
      ExprPtr e = node(K::attribute, line, std::move(object));
      e->name = expect_name();
      return e;
    }
    next();
    std::vector<ExprPtr> items;
    ExprPtr sliced;
    while (!is_op("]")) {
      if (!items.empty() || sliced) expect_op(",");
      if (sliced) error("a slice can't be combined with other subscripts");
      if (is_op(":")) {
        sliced = parse_slice(std::move(object), nullptr, line);
        continue;
      }
      ExprPtr item = parse_expression(true);
      if (is_op(":") && items.empty())
        sliced = parse_slice(std::move(object), std::move(item), line);
      else
        items.push_back(std::move(item));
    }
    next();
    if (sliced) return sliced;
    if (items.size() == 1) return node(K::item, line, std::move(object), std::move(items[0]));
    ExprPtr tuple = node(K::tuple, line);
    for (ExprPtr& item : items) add(*tuple, std::move(item));
    return node(K::item, line, std::move(object), std::move(tuple));
  }

  ExprPtr parse_slice(ExprPtr object, ExprPtr first, int line) {
    ExprPtr e = node(K::slice, line, std::move(object));
    add(*e, std::move(first));
    expect_op(":");
    const auto bound = [&]() -> ExprPtr {
      return is_op(":") || is_op("]") || is_op(",") ? nullptr : parse_expression(true);
    };
    add(*e, bound());
    add(*e, skip_op(":") ? bound() : nullptr);
    return e;
  }

  std::vector<Argument> parse_arguments(Expr& owner) {
    std::vector<Argument> args;
    expect_op("(");
    bool star = false, named = false, double_star = false;
    while (!is_op(")")) {
      if (!args.empty()) {
        expect_op(",");
        if (is_op(")")) break;
      }
      Argument a;
      if (skip_op("*")) {
        a.kind = Argument::Kind::star;
        if (star || double_star) error("invalid syntax for a call");
        star = true;
      } else if (skip_op("**")) {
        a.kind = Argument::Kind::double_star;
        if (double_star) error("invalid syntax for a call");
        double_star = true;
      } else if (now().kind == T::name && look().kind == T::op && look().text == "=") {
        if (double_star) error("invalid syntax for a call");
        a.kind = Argument::Kind::named;
        a.name = expect_name();
        next();
        named = true;
      } else if (star || named || double_star) {
        error("a positional argument follows a named one");
      }
      a.value = parse_expression(true);
      deepen(owner, a.value);
      args.push_back(std::move(a));
    }
    next();
    return args;
  }

  ExprPtr parse_call(ExprPtr callee) {
    ExprPtr e = node(K::call, now().line, std::move(callee));
    e->arguments = parse_arguments(*e);
    return e;
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += "." + expect_name();
    return name;
  }

  void check_known(bool known, const char* what, const Expr& e) {
    if (known) return;
    JinjaFailure f{std::string("no ") + what + " named '" + e.name + "'", e.line};
    if (conditional_ == 0) throw f;
    unknown_.push_back(std::move(f));
  }

  ExprPtr parse_filters(ExprPtr e, bool first_is_inline = false) {
    while (first_is_inline || is_op("|")) {
      if (!first_is_inline) next();
      first_is_inline = false;
      ExprPtr f = node(K::filter, now().line);
      add(*f, std::move(e));
      f->name = dotted_name();
      if (is_op("(")) f->arguments = parse_arguments(*f);
      check_known(filter_exists(f->name), "filter", *f);
      e = std::move(f);
    }
    return e;
  }

  ExprPtr parse_test(ExprPtr subject) {
    const int line = now().line;
    next();
    const bool negated = skip_name("not");
    ExprPtr e = node(K::test, line, std::move(subject));
    e->name = dotted_name();
    const T kind = now().kind;
    const bool literal = kind == T::name || kind == T::string || kind == T::integer || kind == T::floating;
    if (is_op("(")) {
      e->arguments = parse_arguments(*e);
    } else if ((literal || is_op("[") || is_op("{")) && !at_any({"else", "or", "and"})) {
      if (is_name("is")) error("tests can't be chained");
      Argument a;
      a.value = parse_postfix(parse_primary());
      deepen(*e, a.value);
      e->arguments.push_back(std::move(a));
    }
    check_known(test_exists(e->name), "test", *e);
    return negated ? node(K::logical_not, line, std::move(e)) : std::move(e);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0, loops_ = 0, conditional_ = 0;
  std::vector<JinjaFailure> unknown_;
  Tree tree_;
};

}  // namespace

Tree parse_template(std::string_view source) { return Parser(tokenize_template(source)).run(); }

}  // namespace espalier::jinja
