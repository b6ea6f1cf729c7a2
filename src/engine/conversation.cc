#include "engine/conversation.h"

#include <algorithm>

#include "base/json.h"

namespace espalier {
namespace {

// What an answer becomes in the history.
Value assistant_message(const Answer& answer) {
  Value message = Value::object();
  message.set("role", "assistant");
  message.set("content", answer.text);
  if (answer.reasoning) message.set("reasoning_content", *answer.reasoning);
  if (answer.tool_calls.empty()) return message;
  Value calls = Value::array();
  for (const ToolCall& call : answer.tool_calls) {
    Value function = Value::object();
    function.set("name", call.name);
    function.set("arguments", call.arguments);
    Value one = Value::object();
    one.set("id", call.id);
    one.set("type", "function");
    one.set("function", std::move(function));
    calls.push(std::move(one));
  }
  message.set("tool_calls", std::move(calls));
  return message;
}

Value text_message(const char* role, const std::string& text) {
  Value message = Value::object();
  message.set("role", role);
  message.set("content", text);
  return message;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first - a.begin());
}

// Where a snapshot serves the next turn: before what the template adds only to ask for an answer, which later prompts may lack.
int32_t snapshot_place(const Engine::Impl& engine, const Value& messages, const Value& tools, const MarkedText& text,
                       std::span<const int32_t> ids) {
  auto closed = engine.chat->render(messages, tools, {}, false);
  if (!closed.ok()) return 0;
  return ids_within(engine.tokenizer, ids, common_prefix(closed->text.text(), text.text()));
}

}  // namespace

std::optional<std::vector<int32_t>> extend_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids, const MarkedText& text) {
  size_t at = 0;
  const std::string_view all = text.text();
  for (const int32_t id : ids) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (all.substr(at, bytes.size()) != bytes) return std::nullopt;
    at += bytes.size();
  }
  if (at == all.size()) return std::nullopt;
  auto rest = tokenizer.encode(text.substr(at));
  if (!rest.ok() || rest->empty()) return std::nullopt;
  std::vector<int32_t> out(ids.begin(), ids.end());
  out.insert(out.end(), rest->begin(), rest->end());
  return out;
}

int32_t ids_within(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t bytes) {
  size_t at = 0;
  int32_t n = 0;
  for (const int32_t id : ids) {
    at += tokenizer.token_bytes(id).size();
    if (at > bytes) break;
    ++n;
  }
  return n;
}

Value Conversation::Impl::messages() const {
  Value::Array all;
  if (!system.empty()) all.push_back(text_message("system", system));
  all.insert(all.end(), turns.begin(), turns.end());
  return all;
}

Result<std::vector<int32_t>> Conversation::Impl::continue_with(const MarkedText& text) {
  const Tokenizer& tokenizer = engine->tokenizer;
  if (state != nullptr && !kept.empty())
    if (auto ids = extend_ids(tokenizer, kept, text)) return *std::move(ids);
  if (state != nullptr && snapshot != nullptr && snapshot->length() > 0)
    if (auto ids = extend_ids(tokenizer, snapshot->tokens(), text)) {
      ESPALIER_TRY(state->restore(*snapshot));
      if (drafter != nullptr && drafter_snapshot != nullptr) ESPALIER_TRY(drafter->restore(*drafter_snapshot));
      return *std::move(ids);
    }
  state.reset();
  snapshot.reset();
  drafter.reset();
  drafter_snapshot.reset();
  auto ids = tokenizer.encode(text);
  if (!ids.ok()) return Status(ids.status().code(), ids.status().message(), "messages");
  ESPALIER_ASSIGN(state, engine->model->make_state());
  if (Drafter* d = engine->drafting->drafter(); d != nullptr) {
    ESPALIER_ASSIGN(drafter, d->model->make_state());
  }
  return ids;
}

Conversation::Conversation(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Conversation::Conversation(Conversation&&) noexcept = default;
Conversation& Conversation::operator=(Conversation&&) noexcept = default;
Conversation::~Conversation() = default;

void Conversation::set_system(const std::string& text) { impl_->system = text; }
void Conversation::cancel() { impl_->cancelled.store(true, std::memory_order_relaxed); }
std::string Conversation::messages() const { return to_json(impl_->messages()); }

Status Conversation::add_message(const std::string& message_json) {
  auto message = parse_json(message_json);
  if (!message.ok()) return Status(Code::invalid_argument, message.status().message(), "messages");
  if (!message->is_object()) return invalid(std::string("messages: expected an object, found ") + message->type_name(), "messages");
  impl_->turns.push_back(std::move(message).value());
  return {};
}

Result<Answer> Conversation::ask(const std::string& user, const GenerateOptions& options, const Callbacks& callbacks) {
  Impl& c = *impl_;
  const int64_t t0 = now_ns();
  c.cancelled.store(false, std::memory_order_relaxed);
  Value messages = c.messages();
  const Value turn = text_message("user", user);
  messages.push(turn);
  ESPALIER_ASSIGN(const ChatFormat* chat, c.engine->chat_format());
  ESPALIER_ASSIGN(RenderedChat rendered, chat->render(messages, c.tools, {}));
  ReadPrompt prompt{{}, true, rendered.in_thought, c.tools, rendered.warnings};
  ESPALIER_ASSIGN(prompt.ids, c.continue_with(rendered.text));
  ESPALIER_ASSIGN(const PreparedRequest request, prepare_request(*c.engine, std::move(prompt), options, t0));

  GenerationState held{c.state.get(), c.drafter.get(), snapshot_place(*c.engine, messages, c.tools, rendered.text, request.prompt_ids)};
  held.goes_on = true;
  auto answer = generate(*c.engine, request, held, c.cancelled, callbacks);
  if (held.snapshot != nullptr) {
    c.snapshot = std::move(held.snapshot);
    c.drafter_snapshot = std::move(held.drafter_snapshot);
  }
  if (!answer.ok()) {
    c.kept.assign(c.state->tokens().begin(), c.state->tokens().end());
    return answer;
  }
  c.kept = request.prompt_ids;
  c.kept.insert(c.kept.end(), answer->token_ids.begin(), answer->token_ids.end());
  // A cancelled prefill holds less than the prompt; what is kept must begin with what is held either way.
  c.turns.push_back(turn);
  c.turns.push_back(assistant_message(*answer));
  return answer;
}

}  // namespace espalier
