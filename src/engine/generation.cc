#include "engine/generation.h"

#include <algorithm>
#include <random>

namespace espalier {
namespace {

constexpr int64_t kLogprobsMax = 100;
constexpr size_t kStopsMax = 10000;

uint64_t random_seed() {
  std::random_device device;
  // 53 bits: every JSON reader keeps such a number exactly.
  return (uint64_t{device()} << 32 | device()) & ((uint64_t{1} << 53) - 1);
}

SamplingRequest sampling_request(const GenerateOptions& o) {
  SamplingRequest r;
  r.temperature = o.temperature;
  r.top_k = o.top_k;
  r.top_p = o.top_p;
  r.min_p = o.min_p;
  r.repetition_penalty = o.repetition_penalty;
  r.presence_penalty = o.presence_penalty;
  r.frequency_penalty = o.frequency_penalty;
  r.logit_bias = o.logit_bias;
  r.seed = o.seed;
  return r;
}

// The number of tokens that the answer may have.
Result<int64_t> room(const Engine::Impl& engine, size_t prompt, const char* field, const GenerateOptions& options, std::vector<std::string>& warnings) {
  const int64_t context = engine.context(), length = static_cast<int64_t>(prompt);
  if (length >= context)
    return invalid("the prompt has " + std::to_string(length) + " tokens, and the context holds " + std::to_string(context) +
                       ", one of them for the answer; shorten it" +
                       (context < engine.plan.context_length ? " or raise the context (this model: " + std::to_string(engine.plan.context_length) + ")" : ""),
                   field);
  const int64_t left = context - length;
  if (!options.max_tokens) return left;
  if (*options.max_tokens < 1)
    return invalid("max_tokens: expected at least 1, found " + std::to_string(*options.max_tokens), "max_tokens");
  if (*options.max_tokens > left)
    warnings.push_back("max_tokens " + std::to_string(*options.max_tokens) + " is more than the context of " + std::to_string(context) +
                       " leaves behind a prompt of " + std::to_string(length) + " tokens: " + std::to_string(left) + " it is");
  return std::min(*options.max_tokens, left);
}

}  // namespace

Result<PreparedRequest> prepare_request(const Engine::Impl& engine, ReadPrompt prompt, const GenerateOptions& options, int64_t received_ns) {
  PreparedRequest r;
  r.warnings = std::move(prompt.warnings);
  const char* field = prompt.is_chat ? "messages" : "prompt";
  if (prompt.ids.empty()) return invalid("the prompt is empty: expected at least one token", field);
  for (const int32_t id : prompt.ids)
    if (id < 0 || id >= engine.info.vocabulary)
      return invalid("the prompt holds token " + std::to_string(id) + ", and the model has " + std::to_string(engine.info.vocabulary), field);
  ESPALIER_ASSIGN(r.answer.max_tokens, room(engine, prompt.ids.size(), field, options, r.warnings));
  ESPALIER_ASSIGN(r.rules, resolve_sampling(sampling_request(options), engine.checkpoint.generation_config(), engine.info.vocabulary));
  if (!options.seed) r.rules.seed = random_seed();
  if (options.logprobs && (*options.logprobs < 0 || *options.logprobs > kLogprobsMax))
    return invalid("logprobs: expected 0 to " + std::to_string(kLogprobsMax) + " alternatives, found " + std::to_string(*options.logprobs), "logprobs");
  if (options.stop.size() > kStopsMax)
    return invalid("stop: expected at most " + std::to_string(kStopsMax) + " strings, found " + std::to_string(options.stop.size()), "stop");
  r.speculate = engine.speculate;
  if (options.speculate) {
    ESPALIER_ASSIGN(r.speculate, parse_speculation_mode(*options.speculate));
    if (!r.speculate.notice.empty()) r.warnings.push_back(r.speculate.notice);
  }
  r.answer.logprobs = options.logprobs.value_or(-1);
  r.answer.stop = options.stop;
  r.answer.end_ids = engine.end_ids;
  r.answer.is_chat = prompt.is_chat;
  r.answer.in_thought = prompt.in_thought;
  r.answer.tools = std::move(prompt.tools);
  // Wrong stop strings are refused here, not when the model has run.
  const ChatFormat* chat = engine.chat ? &*engine.chat : nullptr;
  if (auto builder = AnswerBuilder::make(engine.tokenizer, chat, r.answer); !builder.ok()) return std::move(builder).status();
  r.prompt_ids = std::move(prompt.ids);
  r.received_ns = received_ns;
  return r;
}

Result<std::unique_ptr<State>> make_drafter_state(Engine::Impl& engine, const SpeculationMode& mode) {
  if (mode.kind == SpeculationMode::Kind::off || engine.drafting->drafter() == nullptr) return std::unique_ptr<State>();
  return engine.drafting->drafter()->model->make_state();
}

Generation::Generation(Engine::Impl& engine, const PreparedRequest& request, GenerationState& held, const std::atomic<bool>& cancelled,
                       const Callbacks& callbacks, AnswerBuilder builder, Decoder& decoder, Speculation* speculation)
    : engine_(engine), request_(request), held_(held), cancelled_(cancelled), callbacks_(callbacks), builder_(std::move(builder)),
      decoder_(decoder), speculation_(speculation) {}

Generation::~Generation() {
  if (id_ < 0) return;
  decoder_.close(id_);
  if (speculation_ == nullptr || !speculation_->follows(id_)) return;
  if (held_.goes_on) speculation_->catch_up(id_);
  speculation_->close(id_);
}

Result<std::unique_ptr<Generation>> Generation::open(Engine::Impl& engine, const PreparedRequest& request, GenerationState& held,
                                                     const std::atomic<bool>& cancelled, const Callbacks& callbacks, Decoder& decoder,
                                                     Speculation* speculation) {
  const ChatFormat* chat = engine.chat ? &*engine.chat : nullptr;
  ESPALIER_ASSIGN(AnswerBuilder builder, AnswerBuilder::make(engine.tokenizer, chat, request.answer));
  std::unique_ptr<Generation> g(new Generation(engine, request, held, cancelled, callbacks, std::move(builder), decoder, speculation));
  g->start_ns_ = now_ns();
  g->reused_ = held.state->length();
  TextLimits limits;
  limits.tokens_max = static_cast<int32_t>(std::min<int64_t>(request.answer.max_tokens, INT32_MAX));
  limits.complete = [generation = g.get()](const DrawnToken& token) { return generation->take(token); };
  ESPALIER_ASSIGN(g->id_, decoder.open(held.state, request.prompt_ids, static_cast<int32_t>(request.prompt_ids.size()), request.rules,
                                       static_cast<int32_t>(request.answer.logprobs), std::move(limits)));
  if (speculation != nullptr) speculation->follow(g->id_, request.rules, *held.state, held.drafter);
  return g;
}

bool Generation::take(const DrawnToken& token) {
  if (drawn_++ == 0) {
    first_ns_ = now_ns();
    tell_prefill(static_cast<int64_t>(request_.prompt_ids.size()));
  }
  return builder_.accept(token.id, token.logprobs, callbacks_) || cancelled_.load(std::memory_order_relaxed);
}

void Generation::tell_prefill(int64_t read) {
  if (read <= told_ || read <= reused_) return;
  told_ = read;
  if (callbacks_.on_prefill) callbacks_.on_prefill(read - reused_, static_cast<int64_t>(request_.prompt_ids.size()) - reused_);
}

int32_t Generation::stop_at() const { return held_.snapshot == nullptr && held_.snapshot_at > held_.state->length() ? held_.snapshot_at : 0; }

bool Generation::before_step() {
  if (!builder_.complete() && cancelled_.load(std::memory_order_relaxed)) builder_.cancel(callbacks_);
  return !builder_.complete();
}

void Generation::after_step() {
  if (held_.snapshot == nullptr && held_.snapshot_at > 0 && held_.state->length() == held_.snapshot_at) {
    held_.snapshot = held_.state->fork();
    if (speculation_ != nullptr) speculation_->catch_up(id_);
    if (held_.drafter != nullptr) held_.drafter_snapshot = held_.drafter->fork();
  }
  if (drawn_ == 0) tell_prefill(held_.state->length());
}

Answer Generation::finish() {
  const int64_t end = now_ns(), prompt = static_cast<int64_t>(request_.prompt_ids.size());
  Answer answer = std::move(builder_).take();
  answer.prompt_token_ids = request_.prompt_ids;
  answer.seed = request_.rules.seed;
  answer.warnings.insert(answer.warnings.begin(), request_.warnings.begin(), request_.warnings.end());
  if (speculation_ != nullptr) {
    if (held_.goes_on) speculation_->catch_up(id_);
    for (std::string& w : speculation_->take_warnings(id_)) answer.warnings.push_back(std::move(w));
    answer.speculation = speculation_->close(id_);
  }
  answer.timings.load_ms = engine_.info.load_ms;
  answer.timings.prefill_ms = ms_between(start_ns_, drawn_ > 0 ? first_ns_ : end);
  answer.timings.ttft_ms = drawn_ > 0 ? ms_between(request_.received_ns, first_ns_) : 0;
  answer.timings.decode_ms = drawn_ > 0 ? ms_between(first_ns_, end) : 0;
  answer.timings.reused_tokens = reused_;
  answer.timings.prefill_tokens = std::min<int64_t>(held_.state->length(), prompt) - reused_;
  answer.timings.decode_tokens = std::max<int64_t>(drawn_ - 1, 0);
  return answer;
}

Result<Answer> generate(Engine::Impl& engine, const PreparedRequest& request, GenerationState& held, const std::atomic<bool>& cancelled,
                        const Callbacks& callbacks) {
  const bool drafts = request.speculate.kind != SpeculationMode::Kind::off;
  Speculation speculation(*engine.drafting, request.speculate);
  Decoder decoder(*engine.model, &engine.calls, drafts ? &speculation : nullptr);
  ESPALIER_ASSIGN(const std::unique_ptr<Generation> generation,
                  Generation::open(engine, request, held, cancelled, callbacks, decoder, drafts ? &speculation : nullptr));
  while (generation->before_step()) {
    ESPALIER_ASSIGN(const StepReport report, decoder.step(engine.pace.rows(), generation->stop_at()));
    if (report.prompt_rows > 0) engine.pace.record(report.call.rows, report.call.t1_ns - report.call.t0_ns);
    generation->after_step();
  }
  return generation->finish();
}

}  // namespace espalier
