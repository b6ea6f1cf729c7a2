// What a template can do, asked by rendering small conversations with marks in them.
#include "text/template.h"

namespace espalier {
namespace {

constexpr CivilTime kNow = {2025, 1, 2, 3, 4, 5};

Value message(std::string_view role, Value content) { return Value(Value::Object{{"role", role}, {"content", std::move(content)}}); }

class Probe {
 public:
  explicit Probe(const ChatTemplate& t) : template_(t) {}

  // The text, or nothing if the template refuses.
  std::string text(Value::Array messages, Value tools = {}, bool prompt = false, Value kwargs = {}) const {
    ChatInput in;
    in.messages = Value(std::move(messages));
    in.tools = std::move(tools);
    in.kwargs = std::move(kwargs);
    in.add_generation_prompt = prompt;
    in.bos_token = "<s>";
    in.eos_token = "</s>";
    in.now = kNow;
    Result<MarkedText> r = template_.render(in);
    return r.ok() ? r->text() : std::string();
  }
  static bool has(const std::string& text, std::string_view mark) { return text.find(mark) != std::string::npos; }

 private:
  const ChatTemplate& template_;
};

Value call_message(std::string_view name) {
  const Value function(Value::Object{{"name", name}, {"arguments", Value::Object{{"zqarg", "zqval"}}}});
  const Value call(Value::Object{{"id", "abcdefghi"}, {"type", "function"}, {"function", function}});
  Value m = message("assistant", "");
  m.set("tool_calls", Value::Array{call});
  return m;
}

Value one_tool() {
  const Value parameters(Value::Object{{"type", "object"}, {"properties", Value::Object{{"zqarg", Value::Object{{"type", "string"}, {"description", "d"}}}}},
                                       {"required", Value::Array{"zqarg"}}});
  const Value function(Value::Object{{"name", "zqtool"}, {"description", "d"}, {"parameters", parameters}});
  return Value(Value::Array{Value(Value::Object{{"type", "function"}, {"function", function}})});
}

void probe_thinking(const ChatTemplate& t, const Probe& p, TemplateCapabilities& c) {
  const Value::Array user = {message("user", "hello")};
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!t.reads(name)) continue;
    const std::string on = p.text(user, {}, true, Value(Value::Object{{name, true}}));
    const std::string off = p.text(user, {}, true, Value(Value::Object{{name, false}}));
    if (on == off || on.empty() || off.empty()) continue;
    c.thinking_switch = name;
    return;
  }
}

}  // namespace

TemplateCapabilities describe_template(const ChatTemplate& t) {
  const Probe p(t);
  TemplateCapabilities c;
  const Value parts(Value::Array{Value(Value::Object{{"type", "text"}, {"text", "zqhello"}})});
  c.string_content = Probe::has(p.text({message("user", "zqhello")}), "zqhello");
  const std::string typed = p.text({message("user", parts)});
  c.part_content = Probe::has(typed, "zqhello") && !Probe::has(typed, "'zqhello'") && !Probe::has(typed, "\"zqhello\"");
  const bool as_parts = c.part_content && !c.string_content;
  const auto content = [&](std::string_view text) -> Value {
    return as_parts ? Value(Value::Array{Value(Value::Object{{"type", "text"}, {"text", text}})}) : Value(text);
  };
  const Value user = message("user", content("hello"));
  c.system = Probe::has(p.text({message("system", content("zqsystem")), user}), "zqsystem");
  c.system_anywhere = c.system && Probe::has(p.text({user, message("system", content("zqsystem")), user}), "zqsystem");
  c.developer = t.mentions("developer") && Probe::has(p.text({message("developer", content("zqdev")), user}), "zqdev");
  c.tools = t.reads("tools") && Probe::has(p.text({user}, one_tool()), "zqtool");
  c.tool_calls = Probe::has(p.text({user, call_message("zqcalled"), message("tool", content("r")), user}, one_tool()), "zqcalled");
  Value result = message("tool", content("zqresult"));
  result.set("tool_call_id", "abcdefghi");
  result.set("name", "zqtool");
  c.tool_results = Probe::has(p.text({user, call_message("zqtool"), result}, one_tool()), "zqresult");
  const std::string open = p.text({user}, {}, true), closed = p.text({user});
  c.generation_prompt = open != closed && !open.empty();
  const size_t last = open.find_last_not_of(" \t\r\n");
  c.opens_thought = last != std::string::npos && std::string_view(open).substr(0, last + 1).ends_with("<think>");
  c.mentions_thought = t.mentions("</think>");
  probe_thinking(t, p, c);
  return c;
}

}  // namespace espalier
