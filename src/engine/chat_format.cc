#include "engine/chat_format.h"

#include <algorithm>

#include "engine/chat_messages.h"

namespace espalier {
namespace {

std::string spelling(const Tokenizer& tokenizer, int32_t id) { return id < 0 ? std::string() : std::string(tokenizer.token_bytes(id)); }

// An entry of tokenizer_config.json that names a token: a string, or an object with "content".
std::string named_token(const Value& config, const char* key) {
  const Value* v = config.find(key);
  if (v != nullptr && v->is_object()) v = v->find("content");
  return v != nullptr && v->is_string() ? v->as_string() : std::string();
}

}  // namespace

Result<ChatFormat> ChatFormat::make(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  const std::string& source = checkpoint.chat_template();
  if (source.empty())
    return Status(Code::not_found, checkpoint.path() + ": there is no chat template, so a chat is refused; use --raw for plain text", "messages");
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return std::move(parsed).status().with_context(checkpoint.path() + ": chat template");
  ChatFormat format(std::move(parsed).value());
  format.find_markers(tokenizer);
  format.bos_ = named_token(checkpoint.tokenizer_config(), "bos_token");
  if (format.bos_.empty()) format.bos_ = spelling(tokenizer, tokenizer.bos_id());
  format.eos_ = named_token(checkpoint.tokenizer_config(), "eos_token");
  if (format.eos_.empty() && !tokenizer.eos_ids().empty()) format.eos_ = spelling(tokenizer, tokenizer.eos_ids().front());
  format.find_end(tokenizer);
  return format;
}

// The forms that calls come in. The template says which one its model was made with, or a control token made for it does.
void ChatFormat::find_markers(const Tokenizer& tokenizer) {
  constexpr std::pair<const char*, const char*> kMarkers[] = {{"<|tool_call_start|>", "<|tool_call_end|>"}, {"<tool_call>", "</tool_call>"}};
  for (const auto& [open, close] : kMarkers) {
    const int32_t id = tokenizer.id_of(open);
    const bool control = id >= 0 && tokenizer.is_special(id);
    if (!control && !template_.mentions(open)) continue;
    markers_ = {open, close, !control};
    return;
  }
}

// The first control token behind an assistant's turn that is nothing but a mark.
void ChatFormat::find_end(const Tokenizer& tokenizer) {
  constexpr std::string_view kMark = "zqxj";
  const Value messages(Value::Array{Value(Value::Object{{"role", "user"}, {"content", "a"}}),
                                    Value(Value::Object{{"role", "assistant"}, {"content", kMark}})});
  auto rendered = render(messages, {}, {}, false);
  if (!rendered.ok()) return;
  const size_t at = rendered->text.text().rfind(kMark);
  if (at == std::string::npos) return;
  auto ids = tokenizer.encode(rendered->text.substr(at + kMark.size()));
  if (!ids.ok()) return;
  const auto end = std::find_if(ids->begin(), ids->end(), [&](int32_t id) { return tokenizer.is_special(id); });
  if (end != ids->end()) end_id_ = *end;
}

Result<RenderedChat> ChatFormat::render(const Value& messages, const Value& tools, const Value& kwargs, bool generation_prompt) const {
  if (!tools.is_null() && !takes_tools()) return unsupported("tools: this model's chat template has no place for tools", "tools");
  if (kwargs.is_object())
    for (const auto& [key, value] : kwargs.as_object())
      if (!template_.reads(key))
        return unsupported("chat_template_kwargs: this model's chat template does not read \"" + key.substr(0, 60) + "\", so it would change nothing",
                           "chat_template_kwargs");
  ChatInput input;
  ESPALIER_ASSIGN(input.messages, normalise_messages(messages, {template_.mentions("developer")}));
  input.tools = tools;
  input.kwargs = kwargs;
  input.add_generation_prompt = generation_prompt;
  input.bos_token = bos_;
  input.eos_token = eos_;
  auto text = template_.render(input);
  if (!text.ok()) return Status(text.status().code(), text.status().message(), "messages");
  RenderedChat out{std::move(text).value(), false, {}};
  out.in_thought = ends_in_thought(out.text);
  return out;
}

}  // namespace espalier
