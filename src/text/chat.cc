#include "text/chat.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/json.h"

namespace espalier {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
constexpr std::array<std::string_view, 3> kThoughts = {"reasoning_content", "thinking", "reasoning"};

std::string found(const Value* v) { return v == nullptr ? "nothing" : v->type_name(); }
std::string shown(const std::string& text) {
  std::string out = "\"";
  return out.append(text, 0, 60).append("\"");
}

Status wrong(const std::string& where, const std::string& what) { return invalid(where + ": " + what, where); }

std::string at(const std::string& where, size_t i) { return where + "[" + std::to_string(i) + "]"; }

Result<std::string> joined_parts(const Value& parts, const std::string& where) {
  std::string text;
  for (size_t i = 0; i < parts.as_array().size(); ++i) {
    const Value& part = parts.as_array()[i];
    if (!part.is_object()) return wrong(at(where, i), "expected an object with \"type\" and \"text\", found " + found(&part));
    const Value* type = part.find("type");
    if (type == nullptr || !type->is_string()) return wrong(at(where, i) + ".type", "expected a string, found " + found(type));
    if (type->as_string() != "text")
      return Status(Code::unsupported, at(where, i) + ": parts of type " + shown(type->as_string()) + " can't be used: this model reads text only",
                    at(where, i));
    const Value* piece = part.find("text");
    if (piece == nullptr || !piece->is_string()) return wrong(at(where, i) + ".text", "expected a string, found " + found(piece));
    text += piece->as_string();
  }
  return text;
}

Status normalise_content(Value& message, const std::string& where, bool as_parts) {
  const Value* content = message.find("content");
  std::string text;
  if (content == nullptr) {
    const bool excused = message.find("tool_calls") != nullptr || message.find("reasoning_content") != nullptr;
    if (!excused) return wrong(where + ".content", "expected a string, null or an array of parts, found nothing");
  } else if (content->is_string()) {
    text = content->as_string();
  } else if (content->is_array()) {
    ESPALIER_ASSIGN(text, joined_parts(*content, where + ".content"));
  } else if (!content->is_null()) {
    return wrong(where + ".content", "expected a string, null or an array of parts, found " + found(content));
  }
  if (as_parts)
    message.set("content", Value::Array{Value(Value::Object{{"type", "text"}, {"text", std::move(text)}})});
  else
    message.set("content", std::move(text));
  return {};
}

Result<Value> call_arguments(const Value* arguments, const std::string& where) {
  if (arguments == nullptr || arguments->is_null()) return Value::object();
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string()) return wrong(where, "expected an object, or one as JSON text, found " + found(arguments));
  if (arguments->as_string().find_first_not_of(" \t\r\n") == std::string::npos) return Value::object();
  Result<Value> parsed = parse_json(arguments->as_string());
  if (!parsed.ok()) return wrong(where, "expected an object as JSON text; " + parsed.status().message());
  if (parsed->is_null()) return Value::object();
  if (!parsed->is_object()) return wrong(where, "expected an object as JSON text, found " + found(&*parsed) + " in it");
  return parsed;
}

Status normalise_calls(Value& message, const std::string& where) {
  Value* calls = message.find("tool_calls");
  if (calls == nullptr) return {};
  if (message.find("role")->as_string() != "assistant") return wrong(where + ".tool_calls", "only assistant messages have calls");
  if (!calls->is_array()) return wrong(where + ".tool_calls", "expected an array, found " + found(calls));
  for (size_t i = 0; i < calls->as_array().size(); ++i) {
    const std::string here = at(where + ".tool_calls", i);
    Value& call = calls->as_array()[i];
    if (!call.is_object()) return wrong(here, "expected an object, found " + found(&call));
    Value* function = call.find("function");
    if (function == nullptr || !function->is_object()) return wrong(here + ".function", "expected an object, found " + found(function));
    const Value* name = function->find("name");
    if (name == nullptr || !name->is_string()) return wrong(here + ".function.name", "expected a string, found " + found(name));
    ESPALIER_ASSIGN(Value arguments, call_arguments(function->find("arguments"), here + ".function.arguments"));
    function->set("arguments", std::move(arguments));
  }
  return {};
}

void drop_nulls(Value& message) {
  Value::Object& members = message.as_object();
  members.erase(std::remove_if(members.begin(), members.end(),
                               [](const Value::Member& m) { return m.first != "content" && m.second.is_null(); }),
                members.end());
}

Status alias_thoughts(Value& message, const std::string& where) {
  for (std::string_view key : kThoughts) {
    const Value* thought = message.find(key);
    if (thought == nullptr) continue;
    if (!thought->is_string()) return wrong(where + "." + std::string(key), "expected a string, found " + found(thought));
    const Value text = *thought;
    message.set("reasoning_content", text);
    if (message.find("thinking") == nullptr) message.set("thinking", text);
    return {};
  }
  return {};
}

Status normalise_message(Value& message, size_t index, const TemplateCapabilities& c) {
  const std::string where = at("messages", index);
  if (!message.is_object()) return wrong(where, "expected an object with \"role\" and \"content\", found " + found(&message));
  const Value* role = message.find("role");
  if (role == nullptr || !role->is_string()) return wrong(where + ".role", "expected a string, found " + found(role));
  if (std::find(kRoles.begin(), kRoles.end(), role->as_string()) == kRoles.end())
    return wrong(where + ".role", "expected system, developer, user, assistant or tool, found " + shown(role->as_string()));
  if (role->as_string() == "developer" && !c.developer) message.set("role", "system");
  const std::string& name = message.find("role")->as_string();
  if (name == "system" && index > 0 && !c.system_anywhere)
    return wrong(where + ".role", "this model's template takes a system message only as the first message");
  if (name == "system" && !c.system && index == 0)
    return Status(Code::unsupported, where + ".role: this model's template has no place for a system message", where + ".role");
  drop_nulls(message);
  ESPALIER_TRY(alias_thoughts(message, where));
  ESPALIER_TRY(normalise_content(message, where, c.part_content && !c.string_content));
  return normalise_calls(message, where);
}

}  // namespace

Result<Value> normalise_chat_messages(const Value& messages, const TemplateCapabilities& capabilities) {
  if (!messages.is_array()) return wrong("messages", "expected an array, found " + found(&messages));
  if (messages.as_array().empty()) return wrong("messages", "expected at least one message, found none");
  Value out = messages;
  for (size_t i = 0; i < out.as_array().size(); ++i) ESPALIER_TRY(normalise_message(out.as_array()[i], i, capabilities));
  return out;
}

Result<Value> check_tools(const Value& tools) {
  if (tools.is_null()) return Value();
  if (!tools.is_array()) return wrong("tools", "expected an array, found " + found(&tools));
  std::set<std::string> names;
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const std::string where = at("tools", i);
    const Value& tool = tools.as_array()[i];
    if (!tool.is_object()) return wrong(where, "expected an object, found " + found(&tool));
    const Value* type = tool.find("type");
    const Value* function = tool.find("function");
    const bool bare = function == nullptr && tool.find("name") != nullptr;
    if (!bare && type != nullptr && !(type->is_string() && type->as_string() == "function"))
      return wrong(where + ".type", "expected \"function\", found " + (type->is_string() ? shown(type->as_string()) : found(type)));
    if (!bare && (function == nullptr || !function->is_object())) return wrong(where + ".function", "expected an object, found " + found(function));
    const std::string inner = bare ? where : where + ".function";
    const Value& body = bare ? tool : *function;
    const Value* name = body.find("name");
    if (name == nullptr || !name->is_string()) return wrong(inner + ".name", "expected a string, found " + found(name));
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::string_view("_-.:/").find(c) != std::string_view::npos;
    };
    const std::string& text = name->as_string();
    if (text.empty() || text.size() > 128 || !std::all_of(text.begin(), text.end(), allowed))
      return wrong(inner + ".name", "expected 1 to 128 letters, digits or _ - . : /, found " + shown(text));
    if (!names.insert(text).second) return wrong(inner + ".name", shown(text) + " is offered twice");
    const Value* parameters = body.find("parameters");
    if (parameters != nullptr && !parameters->is_null() && !parameters->is_object())
      return wrong(inner + ".parameters", "expected a JSON schema (an object), found " + found(parameters));
  }
  return tools.as_array().empty() ? Value() : tools;
}

Result<ChatBody> read_chat_body(const Value& body, const TemplateCapabilities& capabilities) {
  if (!body.is_object()) return wrong("messages", "expected an object with \"messages\", found " + found(&body));
  const Value* messages = body.find("messages");
  if (messages == nullptr) return wrong("messages", "expected an array, found nothing");
  ChatBody out;
  ESPALIER_ASSIGN(out.messages, normalise_chat_messages(*messages, capabilities));
  if (const Value* tools = body.find("tools")) {
    ESPALIER_ASSIGN(out.tools, check_tools(*tools));
  }
  if (!out.tools.is_null() && !capabilities.tools)
    return Status(Code::unsupported, "tools: this model's template has no place for tools", "tools");
  const Value* kwargs = body.find("chat_template_kwargs");
  if (kwargs != nullptr && !kwargs->is_null()) {
    if (!kwargs->is_object()) return wrong("chat_template_kwargs", "expected an object, found " + found(kwargs));
    out.kwargs = *kwargs;
    const Value* thinking = kwargs->find("enable_thinking") != nullptr ? kwargs->find("enable_thinking") : kwargs->find("thinking");
    if (thinking != nullptr && thinking->is_bool()) ESPALIER_TRY(set_thinking(thinking->as_bool(), capabilities, out.kwargs));
  }
  return out;
}

Status set_thinking(bool on, const TemplateCapabilities& capabilities, Value& kwargs) {
  if (!capabilities.thinking_switch.empty()) {
    kwargs.set(capabilities.thinking_switch, on);
    return {};
  }
  if (on && (capabilities.opens_thought || capabilities.mentions_thought)) return {};
  const char* why = on ? "this model's template knows no thoughts" : "this model's template has no switch for thoughts";
  return Status(Code::unsupported, std::string("thinking: ") + why + ", so the option would do nothing", "thinking");
}

}  // namespace espalier
