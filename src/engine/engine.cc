#include "espalier/engine.h"

#include "base/json.h"
#include "engine/answer_json.h"
#include "engine/batch.h"
#include "engine/conversation.h"
#include "engine/engine_impl.h"
#include "engine/generation.h"
#include "engine/prompt.h"
#include "engine/score.h"

namespace espalier {

#define ESPALIER_VERSION_TEXT "0.1.0"
const char* version() { return ESPALIER_VERSION_TEXT; }

Engine::Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<Engine> Engine::open(const OpenOptions& options) {
  ESPALIER_ASSIGN(std::shared_ptr<Impl> impl, open_engine(options));
  return Engine(std::move(impl));
}

const EngineInfo& Engine::info() const { return impl_->info; }

Result<Request> Engine::request(const Prompt& prompt, const GenerateOptions& options) const {
  const int64_t t0 = now_ns();
  ESPALIER_ASSIGN(ReadPrompt read, read_prompt(*impl_, prompt));
  ESPALIER_ASSIGN(PreparedRequest prepared, prepare_request(*impl_, std::move(read), options, t0));
  auto request = std::make_unique<Request::Impl>();
  request->engine = impl_;
  request->prepared = std::move(prepared);
  return Request(std::move(request));
}

void Engine::run_together(std::span<Request> requests, int32_t sequences, const std::function<void(size_t, Result<Answer>)>& done) const {
  std::vector<Request::Impl*> list;
  for (Request& r : requests) list.push_back(&r.impl());
  espalier::run_together(*impl_, list, sequences, done);
}

Result<Conversation> Engine::conversation(const std::string& tools) const {
  ESPALIER_ASSIGN(const Value parsed, parse_tools(tools));
  ESPALIER_ASSIGN([[maybe_unused]] const ChatFormat* chat, impl_->chat_format());
  auto c = std::make_unique<Conversation::Impl>();
  c->engine = impl_;
  c->tools = parsed;
  return Conversation(std::move(c));
}

Result<std::string> Engine::render(const Prompt& prompt) const {
  if (prompt.raw) return *prompt.raw;
  ESPALIER_ASSIGN(const ChatFormat* format, impl_->chat_format());
  ESPALIER_ASSIGN(const RenderedChat chat, render_prompt(*format, prompt));
  return chat.text.text();
}

Result<std::vector<int32_t>> Engine::tokenize(std::string_view text, bool special, bool add_bos) const {
  return impl_->tokenizer.encode(text, {special, add_bos});
}
std::string Engine::detokenize(std::span<const int32_t> ids) const { return impl_->tokenizer.decode(ids, false); }
std::string Engine::token_bytes(int32_t id) const { return std::string(impl_->tokenizer.token_bytes(id)); }

Result<std::vector<Score>> Engine::score(std::span<const int32_t> ids, int32_t alternatives,
                                         const std::function<bool(int64_t, int64_t)>& on_progress) const {
  return score_tokens(*impl_, ids, alternatives, on_progress);
}

std::string Engine::to_json(const Answer& answer, int indent) const {
  return espalier::to_json(to_json_value(answer, impl_->info), indent);
}

Request::Request(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Request::Request(Request&&) noexcept = default;
Request& Request::operator=(Request&&) noexcept = default;
Request::~Request() = default;

Result<Answer> Request::run(const Callbacks& callbacks) {
  if (impl_->used) return invalid("this request has run already; make another");
  impl_->used = true;
  ESPALIER_ASSIGN(std::unique_ptr<State> state, impl_->engine->model->make_state());
  ESPALIER_ASSIGN(const std::unique_ptr<State> drafter, make_drafter_state(*impl_->engine, impl_->prepared.speculate));
  GenerationState held{state.get(), drafter.get()};
  return generate(*impl_->engine, impl_->prepared, held, impl_->cancelled, callbacks);
}

void Request::cancel() { impl_->cancelled.store(true, std::memory_order_relaxed); }
const std::vector<int32_t>& Request::prompt_ids() const { return impl_->prepared.prompt_ids; }

}  // namespace espalier
