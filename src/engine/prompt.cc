#include "engine/prompt.h"

#include "base/json.h"

namespace espalier {
namespace {

Result<Value> parse_field(const std::string& json, const char* field) {
  auto parsed = parse_json(json);
  if (!parsed.ok()) return Status(Code::invalid_argument, std::string(field) + ": " + parsed.status().message(), field);
  return parsed;
}

}  // namespace

Result<Value> parse_messages(const std::string& json) {
  ESPALIER_ASSIGN(Value v, parse_field(json, "messages"));
  if (!v.is_array()) return invalid(std::string("messages: expected an array, found ") + v.type_name(), "messages");
  return v;
}

Result<Value> parse_tools(const std::string& json) {
  if (json.empty()) return Value();
  ESPALIER_ASSIGN(Value v, parse_field(json, "tools"));
  if (v.is_null() || (v.is_array() && v.as_array().empty())) return Value();
  if (!v.is_array()) return invalid(std::string("tools: expected an array, found ") + v.type_name(), "tools");
  return v;
}

Result<Value> parse_kwargs(const std::string& json) {
  if (json.empty()) return Value();
  ESPALIER_ASSIGN(Value v, parse_field(json, "chat_template_kwargs"));
  if (!v.is_null() && !v.is_object())
    return invalid(std::string("chat_template_kwargs: expected an object, found ") + v.type_name(), "chat_template_kwargs");
  return v;
}

Result<RenderedChat> render_prompt(const ChatFormat& chat, const Prompt& prompt) {
  ESPALIER_ASSIGN(const Value messages, parse_messages(prompt.messages));
  ESPALIER_ASSIGN(const Value tools, parse_tools(prompt.tools));
  ESPALIER_ASSIGN(const Value kwargs, parse_kwargs(prompt.template_kwargs));
  return chat.render(messages, tools, kwargs);
}

Result<ReadPrompt> read_prompt(const Engine::Impl& engine, const Prompt& prompt) {
  ReadPrompt out;
  const int given = (prompt.messages.empty() ? 0 : 1) + (prompt.raw ? 1 : 0) + (prompt.ids.empty() ? 0 : 1);
  if (given != 1)
    return invalid(given == 0 ? "expected messages, a raw text or token ids" : "expected one of messages, a raw text and token ids, found several", "messages");
  if (!prompt.ids.empty()) {
    out.ids = prompt.ids;
  } else if (prompt.raw) {
    auto ids = engine.tokenizer.encode(*prompt.raw, {prompt.raw_special, true});
    if (!ids.ok()) return Status(ids.status().code(), ids.status().message(), "prompt");
    out.ids = std::move(ids).value();
  } else {
    ESPALIER_ASSIGN(const ChatFormat* format, engine.chat_format());
    ESPALIER_ASSIGN(RenderedChat chat, render_prompt(*format, prompt));
    auto ids = engine.tokenizer.encode(chat.text);
    if (!ids.ok()) return Status(ids.status().code(), ids.status().message(), "messages");
    out.ids = std::move(ids).value();
    out.is_chat = true;
    out.in_thought = chat.in_thought;
    out.warnings = std::move(chat.warnings);
    ESPALIER_ASSIGN(out.tools, parse_tools(prompt.tools));
  }
  return out;
}

}  // namespace espalier
