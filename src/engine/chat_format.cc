#include "engine/chat_format.h"

#include <algorithm>

#include "text/chat.h"

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
  format.capabilities_ = describe_template(format.template_);
  format.find_markers(tokenizer);
  format.bos_ = named_token(checkpoint.tokenizer_config(), "bos_token");
  if (format.bos_.empty()) format.bos_ = spelling(tokenizer, tokenizer.bos_id());
  format.eos_ = named_token(checkpoint.tokenizer_config(), "eos_token");
  if (format.eos_.empty() && !tokenizer.eos_ids().empty()) format.eos_ = spelling(tokenizer, tokenizer.eos_ids().front());
  format.find_end(tokenizer);
  return format;
}

void ChatFormat::find_markers(const Tokenizer& tokenizer) {
  output_ = find_output_format(template_, [&](std::string_view text) { return tokenizer.id_of(text) >= 0; }, false);
  std::vector<std::string_view> markers;
  if (output_.calls != OutputFormat::Calls::none && output_.call_markers_are_tokens) markers = {output_.call_start, output_.call_end};
  if (output_.thought_markers_are_tokens) markers.insert(markers.end(), {output_.thought_start, output_.thought_end});
  for (const std::string_view marker : markers)
    if (const int32_t id = marker.empty() ? -1 : tokenizer.id_of(marker); id >= 0) marker_ids_.push_back(id);
  std::sort(marker_ids_.begin(), marker_ids_.end());
}

OutputFormat ChatFormat::output(bool in_thought) const {
  OutputFormat format = output_;
  format.starts_in_thought = in_thought;
  format.reasoning = format.reasoning || in_thought;
  return format;
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
  ESPALIER_ASSIGN(Value offered, check_tools(tools));
  if (!offered.is_null() && !capabilities_.tools) return unsupported("tools: this model's chat template has no place for tools", "tools");
  if (kwargs.is_object())
    for (const auto& [key, value] : kwargs.as_object())
      if (!template_.reads(key))
        return unsupported("chat_template_kwargs: this model's chat template does not read \"" + key.substr(0, 60) + "\", so it would change nothing",
                           "chat_template_kwargs");
  ChatInput input;
  ESPALIER_ASSIGN(input.messages, normalise_chat_messages(messages, capabilities_));
  input.tools = std::move(offered);
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
