#include "engine/chat_messages.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace espalier {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

Status wrong(size_t index, const std::string& what) { return invalid("messages[" + std::to_string(index) + "]: " + what, "messages"); }

Result<std::string> joined_parts(size_t index, const Value& parts) {
  std::string text;
  for (const Value& part : parts.as_array()) {
    const Value* type = part.find("type");
    const Value* piece = part.find("text");
    if (type == nullptr || !type->is_string()) return wrong(index, "content: each part needs a \"type\"");
    if (type->as_string() != "text") return wrong(index, "content: parts of type \"" + type->as_string().substr(0, 40) + "\" are not supported, only text");
    if (piece == nullptr || !piece->is_string()) return wrong(index, "content: a text part needs a \"text\" that is a string");
    text += piece->as_string();
  }
  return text;
}

Status normalise_content(size_t index, Value& message) {
  const Value* content = message.find("content");
  if (content == nullptr || content->is_null()) {
    message.set("content", "");
    return {};
  }
  if (content->is_string()) return {};
  if (!content->is_array()) return wrong(index, std::string("content: expected a string or an array of parts, found ") + content->type_name());
  ESPALIER_ASSIGN(std::string text, joined_parts(index, *content));
  message.set("content", std::move(text));
  return {};
}

// Templates walk through arguments; OpenAI sends them as JSON text.
Status normalise_calls(size_t index, Value& message) {
  Value* calls = message.find("tool_calls");
  if (calls == nullptr || calls->is_null()) return {};
  if (!calls->is_array()) return wrong(index, std::string("tool_calls: expected an array, found ") + calls->type_name());
  for (Value& call : calls->as_array()) {
    Value* function = call.find("function") != nullptr ? call.find("function") : &call;
    const Value* name = function->find("name");
    if (name == nullptr || !name->is_string()) return wrong(index, "tool_calls: each needs a function with a \"name\"");
    const Value* arguments = function->find("arguments");
    Value parsed = Value::object();
    if (arguments != nullptr && arguments->is_string() && arguments->as_string().find_first_not_of(" \t\r\n") != std::string::npos) {
      auto value = parse_json(arguments->as_string());
      if (!value.ok()) return wrong(index, "tool_calls: arguments of " + name->as_string().substr(0, 60) + ": " + value.status().message());
      if (!value->is_null()) parsed = std::move(value).value();
    } else if (arguments != nullptr && !arguments->is_null() && !arguments->is_string()) {
      parsed = *arguments;
    }
    if (!parsed.is_object()) return wrong(index, std::string("tool_calls: arguments: expected an object, found ") + parsed.type_name());
    function->set("arguments", std::move(parsed));
  }
  return {};
}

}  // namespace

Result<Value> normalise_messages(const Value& messages, const MessageRules& rules) {
  if (!messages.is_array()) return invalid(std::string("messages: expected an array, found ") + messages.type_name(), "messages");
  if (messages.as_array().empty()) return invalid("messages: expected at least one message, found none", "messages");
  Value out = messages;
  for (size_t i = 0; i < out.as_array().size(); ++i) {
    Value& message = out.as_array()[i];
    if (!message.is_object()) return wrong(i, std::string("expected an object, found ") + message.type_name());
    const Value* role = message.find("role");
    if (role == nullptr || !role->is_string()) return wrong(i, "role: expected a string, found " + std::string(role == nullptr ? "nothing" : role->type_name()));
    if (std::find(kRoles.begin(), kRoles.end(), role->as_string()) == kRoles.end())
      return wrong(i, "role: expected system, developer, user, assistant or tool, found \"" + role->as_string().substr(0, 40) + "\"");
    if (role->as_string() == "developer" && !rules.developer) message.set("role", "system");
    ESPALIER_TRY(normalise_content(i, message));
    ESPALIER_TRY(normalise_calls(i, message));
  }
  return out;
}

}  // namespace espalier
