#include "text/tool_calls.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "text/python_literal.h"

namespace espalier {
namespace {

// An answer as tokens: {text, is an added token}.
using Tokens = std::vector<std::pair<std::string, bool>>;

const char* const kOpen = "<|tool_call_start|>";
const char* const kClose = "<|tool_call_end|>";

Value tools() {
  return parse_json(R"([
    {"type":"function","function":{"name":"web_search","parameters":{"type":"object","properties":{"query":{"type":"string"},"n":{"type":"integer"}}}}},
    {"type":"function","function":{"name":"python","parameters":{"type":"object","properties":{"code":{"type":"string"}}}}},
    {"type":"function","function":{"name":"grocery.order","parameters":{"type":"object","properties":{"items":{"type":"array"}}}}},
    {"type":"function","function":{"name":"open","parameters":{"type":"object","properties":{},"additionalProperties":true}}},
    {"type":"function","function":{"name":"ping"}},
    {"type":"function","function":{"name":"get_time","parameters":{"type":"object","properties":{}}}}])")
      .value();
}

OutputFormat lfm2(bool in_thought = false) {
  OutputFormat f;
  f.calls = OutputFormat::Calls::enclosed;
  f.call_start = kOpen;
  f.call_end = kClose;
  f.reasoning = true;
  f.starts_in_thought = in_thought;
  return f;
}

// The same with markers that are ordinary text.
OutputFormat spelled(OutputFormat f) {
  f.call_markers_are_tokens = f.thought_markers_are_tokens = false;
  return f;
}

struct Outcome {
  std::string content, reasoning, order;
  std::vector<std::string> calls;
  std::vector<std::string> warnings;
  bool operator==(const Outcome&) const = default;
};

void take(Outcome& o, const std::vector<OutputPiece>& pieces) {
  for (const OutputPiece& p : pieces) {
    const char kind = p.kind == OutputPiece::Kind::content ? 'c' : p.kind == OutputPiece::Kind::reasoning ? 'r' : 'f';
    if (kind == 'f' || o.order.empty() || o.order.back() != kind) o.order += kind;
    if (kind == 'c') o.content += p.text;
    if (kind == 'r') o.reasoning += p.text;
    if (kind == 'f') o.calls.push_back(p.call.name + p.call.arguments_json());
  }
}

Outcome parse(const OutputFormat& format, const Tokens& tokens, size_t step) {
  OutputParser parser(format, tools());
  Outcome o;
  for (const auto& [text, control] : tokens) {
    if (control || step == 0) {
      take(o, parser.push(text, control));
      continue;
    }
    for (size_t i = 0; i < text.size(); i += step) take(o, parser.push(std::string_view(text).substr(i, step)));
  }
  take(o, parser.finish());
  o.warnings = parser.warnings();
  EXPECT_EQ(static_cast<size_t>(parser.calls()), o.calls.size());
  return o;
}

// In every split, and with every second split point, the result is the one of the whole.
Outcome run(const OutputFormat& format, const Tokens& tokens) {
  const Outcome whole = parse(format, tokens, 0);
  size_t longest = 0;
  for (const auto& t : tokens) longest = std::max(longest, t.first.size());
  for (size_t step = 1; step <= longest; ++step) {
    const Outcome o = parse(format, tokens, step);
    EXPECT_EQ(o, whole) << "pieces of " << step << ": " << o.content << " | " << o.reasoning << " | " << o.order;
  }
  // Two pieces, cut anywhere in each text.
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t].second) continue;
    for (size_t cut = 1; cut < tokens[t].first.size(); ++cut) {
      Tokens split = tokens;
      split[t].first = tokens[t].first.substr(0, cut);
      split.insert(split.begin() + static_cast<long>(t) + 1, {tokens[t].first.substr(cut), false});
      EXPECT_EQ(parse(format, split, 0), whole) << "cut at " << cut << " of " << tokens[t].first;
    }
  }
  return whole;
}

Outcome call(const std::string& inside) {
  const Outcome tokens = run(lfm2(), {{kOpen, true}, {inside, false}, {kClose, true}});
  EXPECT_EQ(run(spelled(lfm2()), {{kOpen + inside + kClose, false}}), tokens);
  return tokens;
}

TEST(ToolCalls, L29_single_quotes_and_typed_arguments) {
  const Outcome o = call("[web_search(query='a b', n=5)]");
  EXPECT_EQ(o.calls, (std::vector<std::string>{R"(web_search{"query":"a b","n":5})"}));
  EXPECT_EQ(o.content + o.reasoning, "");
  EXPECT_TRUE(o.warnings.empty());
}

TEST(ToolCalls, L30_brackets_in_text_are_text) {
  for (const OutputFormat& f : {lfm2(), spelled(lfm2())}) {
    const Outcome o = run(f, {{"items = [1, 2]\n[ping()] <|tool", false}});
    EXPECT_EQ(o.content, "items = [1, 2]\n[ping()] <|tool");
    EXPECT_TRUE(o.calls.empty() && o.warnings.empty());
  }
}

TEST(ToolCalls, L30_text_before_a_marker_streams_at_once) {
  OutputParser parser(lfm2(), tools());
  Outcome o;
  take(o, parser.push("items = [1"));
  EXPECT_EQ(o.content, "items = [1");
}

TEST(ToolCalls, a_marker_that_is_spelled_is_none_where_it_is_a_token) {
  const Outcome o = run(lfm2(), {{std::string("say ") + kOpen + "[ping()]" + kClose + " </think>", false}});
  EXPECT_EQ(o.content, std::string("say ") + kOpen + "[ping()]" + kClose + " </think>");
  EXPECT_TRUE(o.calls.empty());
}

TEST(ToolCalls, L31_escapes_are_decoded_once) {
  EXPECT_EQ(call(R"([python(code='print(1)\nprint(2)')])").calls[0], R"x(python{"code":"print(1)\nprint(2)"})x");
  EXPECT_EQ(call(R"([python(code="a\\n\"b\" \'c\' \u00e9 \x41 \ud83d\ude0a")])").calls[0], "python" + to_json(Value(Value::Object{{"code", "a\\n\"b\" 'c' é A 😊"}})));
}

TEST(ToolCalls, L32_dotted_names_nested_values_and_a_second_call) {
  const Outcome o = call(R"([grocery.order(items=[{"id":1,"q":2}]), ping()])");
  EXPECT_EQ(o.calls, (std::vector<std::string>{R"(grocery.order{"items":[{"id":1,"q":2}]})", "ping{}"}));
}

TEST(ToolCalls, L33_a_call_leaves_no_content_and_ends_as_tool_calls) {
  const Outcome o = run(lfm2(true), {{"I need the time.\n", false}, {"</think>", true}, {"\n", false}, {kOpen, true}, {"[get_time()]", false}, {kClose, true}, {"\n", false}});
  EXPECT_EQ(o.content, "");
  EXPECT_EQ(o.reasoning, "I need the time.");
  EXPECT_EQ(o.calls, (std::vector<std::string>{"get_time{}"}));
}

TEST(ToolCalls, L34_what_was_not_offered_stays_text) {
  const Outcome o = call("[rm_rf(path='/')]");
  EXPECT_TRUE(o.calls.empty());
  EXPECT_EQ(o.content, "[rm_rf(path='/')]");
  ASSERT_EQ(o.warnings.size(), 1u);
  EXPECT_NE(o.warnings[0].find("rm_rf"), std::string::npos);
  EXPECT_EQ(call("[get_time(zone='x')]").content, "[get_time(zone='x')]");
  const Outcome mixed = call("[ping(), rm_rf(path='/'), web_search(query='q')]");
  EXPECT_EQ(mixed.calls, (std::vector<std::string>{"ping{}", R"(web_search{"query":"q"})"}));
  EXPECT_EQ(mixed.content, "rm_rf(path='/')");
  EXPECT_EQ(mixed.order, "fcf");
}

TEST(ToolCalls, without_tools_every_call_is_text) {
  OutputParser parser(lfm2(), {});
  Outcome o;
  take(o, parser.push(kOpen, true));
  take(o, parser.push("[ping()]"));
  take(o, parser.push(kClose, true));
  take(o, parser.finish());
  EXPECT_EQ(o.content, "[ping()]");
  EXPECT_EQ(parser.warnings().size(), 1u);
}

TEST(ToolCalls, L26_reasoning_and_text_stream_while_tools_are_offered) {
  OutputParser parser(lfm2(true), tools());
  Outcome o;
  take(o, parser.push("hm"));
  EXPECT_EQ(o.reasoning, "hm");
  take(o, parser.push(", so"));
  EXPECT_EQ(o.reasoning, "hm, so");
  take(o, parser.push("</think>", true));
  take(o, parser.push("Answer"));
  EXPECT_EQ(o.content, "Answer");
}

TEST(ToolCalls, L17_a_thought_that_is_cut_stays_a_thought) {
  for (const OutputFormat& f : {lfm2(true), spelled(lfm2(true))}) {
    const Outcome o = run(f, {{"\nThe user wants\n\n", false}});
    EXPECT_EQ(o.reasoning, "The user wants\n\n");
    EXPECT_EQ(o.content, "");
  }
}

TEST(ToolCalls, L25_nothing_that_was_held_is_lost) {
  EXPECT_EQ(run(spelled(lfm2()), {{"\n\nHello <|tool_call_st", false}}).content, "\n\nHello <|tool_call_st");
  EXPECT_EQ(run(spelled(lfm2()), {{"a < b <th", false}}).content, "a < b <th");
  EXPECT_EQ(run(lfm2(), {{"\n", false}}).content, "\n");
}

TEST(ToolCalls, a_thought_opens_by_its_marker_and_ends_by_its_own_or_by_a_call) {
  const Tokens tokens = {{"<think>", true}, {"\nwhy\nnot\n", false}, {"</think>", true}, {"\n\n Yes.\n", false}};
  const Outcome o = run(lfm2(), tokens);
  EXPECT_EQ(o.reasoning, "why\nnot");
  EXPECT_EQ(o.content, " Yes.\n");
  EXPECT_EQ(run(spelled(lfm2()), {{"<think>\nwhy\nnot\n</think>\n\n Yes.\n", false}}), o);
  const Outcome ended = run(lfm2(true), {{"so\n", false}, {kOpen, true}, {"[ping()]", false}, {kClose, true}, {"Done.", false}});
  EXPECT_EQ(ended.reasoning, "so");
  EXPECT_EQ(ended.order, "rfc");
  EXPECT_EQ(run(lfm2(true), {{"<think>", true}, {"x", false}, {"</think>", true}}).reasoning, "x");
}

TEST(ToolCalls, markers_out_of_place_never_reach_the_text) {
  const Outcome o = run(lfm2(), {{"a", false}, {"</think>", true}, {"b", false}, {kClose, true}, {"c", false}});
  EXPECT_EQ(o.content, "abc");
  EXPECT_EQ(o.warnings.size(), 1u);
}

TEST(ToolCalls, an_incomplete_call_is_text) {
  const Outcome o = run(lfm2(), {{"Look: ", false}, {kOpen, true}, {"[web_search(query='a", false}});
  EXPECT_EQ(o.content, "Look: [web_search(query='a");
  EXPECT_TRUE(o.calls.empty());
  EXPECT_EQ(o.warnings.size(), 1u);
  // The list is complete, only its marker is missing.
  EXPECT_EQ(run(lfm2(), {{kOpen, true}, {"[ping()]", false}}).calls.size(), 1u);
  EXPECT_EQ(run(lfm2(), {{kOpen, true}, {"[", false}, {kOpen, true}, {"[ping()]", false}, {kClose, true}}).content, "[");
}

TEST(ToolCalls, positional_arguments_take_the_properties_in_order) {
  EXPECT_EQ(call("[web_search('a', 3)]").calls[0], R"(web_search{"query":"a","n":3})");
  EXPECT_EQ(call("[web_search('a', n=3)]").calls[0], R"(web_search{"query":"a","n":3})");
  EXPECT_TRUE(call("[web_search('a', query='b')]").calls.empty());
  EXPECT_TRUE(call("[web_search('a', 1, 2)]").calls.empty());
  EXPECT_EQ(call("[open(anything=1)]").calls[0], R"(open{"anything":1})");
}

TEST(ToolCalls, json_inside_the_same_envelope) {
  EXPECT_EQ(call(R"([{"name": "web_search", "arguments": {"query": "x", "n": 1}}])").calls[0], R"(web_search{"query":"x","n":1})");
  EXPECT_EQ(call(R"({"name": "ping"})").calls[0], "ping{}");
  EXPECT_EQ(call(R"({"type": "function", "function": {"name": "ping", "arguments": "{}"}})").calls[0], "ping{}");
  EXPECT_EQ(call("{'name': 'web_search', 'arguments': {'query': 'x', 'n': None}}").calls[0], R"(web_search{"query":"x","n":null})");
  EXPECT_EQ(call("{\"name\": \"ping\"}\n{\"name\": \"get_time\"}").calls.size(), 2u);
  EXPECT_EQ(call(R"({"nom": "ping"})").content, R"({"nom": "ping"})");
  EXPECT_EQ(call("").content, "");
}

TEST(ToolCalls, the_form_comes_from_the_template_and_the_tokens) {
  const auto has = [](std::vector<std::string> tokens) {
    return [tokens](std::string_view t) { return std::find(tokens.begin(), tokens.end(), t) != tokens.end(); };
  };
  const ChatTemplate uses_tools = ChatTemplate::parse("{{ tools }}").value();
  const ChatTemplate plain = ChatTemplate::parse("{{ messages }}").value();
  const ChatTemplate hermes = ChatTemplate::parse("{{ tools }}<tool_call>\n</think>").value();
  const OutputFormat a = find_output_format(uses_tools, has({kOpen, kClose, "<think>", "</think>"}), true);
  EXPECT_EQ(a.call_start, kOpen);
  EXPECT_TRUE(a.reasoning && a.starts_in_thought && a.call_markers_are_tokens && a.thought_markers_are_tokens);
  EXPECT_EQ(find_output_format(plain, has({kOpen, kClose}), false).calls, OutputFormat::Calls::none);
  const OutputFormat b = find_output_format(hermes, has({}), false);
  EXPECT_EQ(b.call_start, "<tool_call>");
  EXPECT_TRUE(b.reasoning && !b.call_markers_are_tokens && !b.thought_markers_are_tokens);
  EXPECT_EQ(find_output_format(uses_tools, has({}), false).calls, OutputFormat::Calls::none);
  const Outcome o = run(b, {{"<think>x</think>\n\nLet me.\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\"}\n</tool_call>", false}});
  EXPECT_EQ(o.calls.size(), 2u);
  EXPECT_EQ(o.content, "Let me.\n\n");
}

TEST(ToolCalls, bare_json_is_held_only_while_it_may_be_a_call) {
  OutputFormat f;
  f.calls = OutputFormat::Calls::bare_json;
  f.call_start = "<|python_tag|>";
  EXPECT_EQ(run(f, {{R"({"name": "web_search", "parameters": {"query": "x"}})", false}}).calls[0], R"(web_search{"query":"x"})");
  EXPECT_EQ(run(f, {{"<|python_tag|>", true}, {R"({"name": "ping", "parameters": {}}; {"name": "get_time"})", false}}).calls.size(), 2u);
  const Outcome text = run(f, {{" {\"a\": 1}\n", false}});
  EXPECT_EQ(text.content, " {\"a\": 1}\n");
  EXPECT_TRUE(text.warnings.empty());
  OutputFormat thinks = spelled(f);
  thinks.reasoning = true;
  EXPECT_EQ(run(thinks, {{" <think>a</think>{\"name\": \"ping\"}", false}}).calls.size(), 1u);
  EXPECT_EQ(run(thinks, {{"{\"x\": \"<think>\"}", false}}).content, "{\"x\": \"<think>\"}");
  OutputParser parser(f, tools());
  Outcome o;
  take(o, parser.push(" "));
  take(o, parser.push("Hello"));
  EXPECT_EQ(o.content, " Hello");
}

std::string literal(const std::string& text) {
  const Result<Value> v = parse_python_literal(text);
  return v.ok() ? to_json(*v) : "refused";
}

TEST(PythonLiteral, values) {
  const std::pair<const char*, const char*> cases[] = {
      {"1", "1"}, {"-3", "-3"}, {"+4", "4"}, {"1_000", "1000"}, {"0x1F", "31"}, {"2.5", "2.5"}, {".5", "0.5"}, {"-.5", "-0.5"}, {"5.", "5.0"}, {"1e3", "1000.0"}, {"1E-2", "0.01"}, {"9223372036854775808", "9223372036854775808.0"},
      {"True", "true"}, {"false", "false"}, {"None", "null"}, {"null", "null"}, {"'a'", "\"a\""}, {"\"it's\"", "\"it's\""}, {"'a' \"b\"", "\"ab\""}, {"'''a\n'b'''", R"("a\n'b")"}, {"''", "\"\""}, {"r'\\n'", R"("\\n")"}, {"'\\q\\101\\/'", R"("\\qA/")"},
      {"'\\ud83d'", "\"\xef\xbf\xbd\""}, {"[]", "[]"}, {"[1, 'a',]", "[1,\"a\"]"}, {"(1,)", "[1]"}, {"(1)", "1"}, {"()", "[]"}, {"{}", "{}"}, {"{'a': [1, (2, 3)], \"b\": {'c': None}}", R"({"a":[1,[2,3]],"b":{"c":null}})"}, {"{1: 2, True: 3, None: 4}", R"({"1":2,"true":3,"null":4})"},
      {"", "refused"}, {"x", "refused"}, {"1 2", "refused"}, {"'a", "refused"}, {"[1", "refused"}, {"{'a'}", "refused"}, {"{[1]: 2}", "refused"}, {"1.2.3", "refused"}, {"--1", "refused"}, {"1x", "refused"}, {"'\\x4'", "refused"}, {"1e999", "refused"}, {"[,]", "refused"}, {"__import__('os')", "refused"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(literal(text), expected) << text;
  EXPECT_EQ(literal(std::string(100000, '[')), "refused");
  EXPECT_NE(literal(std::string(60, '[') + std::string(60, ']')), "refused");
}

TEST(PythonLiteral, calls) {
  const auto names = [](const std::string& text) {
    const auto r = parse_python_calls(text);
    if (!r.ok()) return std::string("refused");
    std::string out;
    for (const PythonCall& c : *r) out += c.name + "/" + std::to_string(c.positional.size()) + "/" + to_json(Value(c.named)) + " ";
    return out;
  };
  EXPECT_EQ(names("[f(a=1), g.h('x', b=[1])]"), "f/0/{\"a\":1} g.h/1/{\"b\":[1]} ");
  EXPECT_EQ(names(" f() "), "f/0/{} ");
  EXPECT_EQ(names("f()\ng(); h(),i()"), "f/0/{} g/0/{} h/0/{} i/0/{} ");
  EXPECT_EQ(names("[f(**{'a': 1}, b=2,)]"), "f/0/{\"a\":1,\"b\":2} ");
  EXPECT_EQ(names("[f(a='),(', b=\"]\")]"), "f/0/{\"a\":\"),(\",\"b\":\"]\"} ");
  for (const char* bad : {"", "[]", "f", "f(", "[f()", "f() g()", "[f(a=1, a=2)]", "[f(a=1, 2)]", "[f(a=b)]", "[1(a=2)]", "[f(a=1) g()]", "f()x"}) EXPECT_EQ(names(bad), "refused") << bad;
}

}  // namespace
}  // namespace espalier
