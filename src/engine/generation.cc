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

// One call under the lock of the model.
Result<StepReport> step(Engine::Impl& engine, Decoder& decoder, SequenceId id, int32_t stop_at) {
  const bool prompt = decoder.waiting_rows(id) > 1;
  const std::lock_guard<std::mutex> lock(engine.calls);
  auto report = decoder.step(engine.pace.rows(), stop_at);
  if (report.ok() && prompt) engine.pace.record(report->call.rows, report->call.t1_ns - report->call.t0_ns);
  return report;
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

Result<Answer> generate(Engine::Impl& engine, const PreparedRequest& request, GenerationState& held, const std::atomic<bool>& cancelled,
                        const Callbacks& callbacks) {
  const int64_t t0 = monotonic_ns();
  const int64_t prompt = static_cast<int64_t>(request.prompt_ids.size()), reused = held.state->length();
  const ChatFormat* chat = engine.chat ? &*engine.chat : nullptr;
  ESPALIER_ASSIGN(AnswerBuilder builder, AnswerBuilder::make(engine.tokenizer, chat, request.answer));
  Decoder decoder(*engine.model);
  ESPALIER_ASSIGN(const SequenceId id, decoder.open(held.state, request.prompt_ids, static_cast<int32_t>(prompt), request.rules,
                                                     static_cast<int32_t>(request.answer.logprobs)));
  int64_t first = 0;
  int64_t drawn = 0;
  while (!builder.complete()) {
    if (cancelled.load(std::memory_order_relaxed)) {
      builder.cancel(callbacks);
      break;
    }
    const bool before_snapshot = held.snapshot == nullptr && held.snapshot_at > held.state->length();
    ESPALIER_ASSIGN(const StepReport report, step(engine, decoder, id, before_snapshot ? held.snapshot_at : 0));
    if (held.snapshot == nullptr && held.snapshot_at > 0 && held.state->length() == held.snapshot_at) held.snapshot = held.state->fork();
    if (report.prompt_rows > 0 && callbacks.on_prefill) callbacks.on_prefill(held.state->length() - reused, prompt - reused);
    for (const DrawnToken& token : report.drawn) {
      if (drawn++ == 0) first = monotonic_ns();
      builder.accept(token.id, token.logprobs, callbacks);
    }
  }
  const int64_t t1 = monotonic_ns();
  Answer answer = std::move(builder).take();
  answer.prompt_token_ids = request.prompt_ids;
  answer.seed = request.rules.seed;
  answer.warnings.insert(answer.warnings.begin(), request.warnings.begin(), request.warnings.end());
  answer.timings.load_ms = engine.info.load_ms;
  answer.timings.prefill_ms = ms_between(t0, drawn > 0 ? first : t1);
  answer.timings.ttft_ms = drawn > 0 ? ms_between(request.received_ns, first) : 0;
  answer.timings.decode_ms = drawn > 0 ? ms_between(first, t1) : 0;
  answer.timings.reused_tokens = reused;
  answer.timings.prefill_tokens = std::min<int64_t>(held.state->length(), prompt) - reused;
  answer.timings.decode_tokens = std::max<int64_t>(drawn - 1, 0);
  return answer;
}

}  // namespace espalier
