// The C functions over the C++ ones. Nothing here may throw into C: allocation failures become a status.
#include "espalier/espalier.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/json.h"
#include "engine/body.h"
#include "espalier/engine.h"

struct espalier_status {
  espalier::Status status;
};
struct espalier_engine {
  espalier::Engine engine;
};
struct espalier_request {
  espalier::Engine engine;
  espalier::Request request;
  std::vector<std::string> warnings;
};
struct espalier_answer {
  espalier::Answer answer;
  std::string json;
};

namespace espalier {
namespace {

static_assert(static_cast<int>(Code::internal) == ESPALIER_INTERNAL && static_cast<int>(Code::out_of_memory) == ESPALIER_OUT_OF_MEMORY);

// Stands for exhausted memory, when there is none to make a status of.
espalier_status no_memory{{Code::out_of_memory, "there is not enough memory"}};

espalier_status* give(Status status) { return status.ok() ? nullptr : new espalier_status{std::move(status)}; }

// Runs `fn`, which returns a Status, and lets no exception out.
template <typename Fn>
espalier_status* guarded(Fn&& fn) {
  try {
    return give(fn());
  } catch (const std::bad_alloc&) {
    return &no_memory;
  } catch (...) {
    return give({Code::internal, "an exception reached the border of the library"});
  }
}

std::string text_or(const char* text, const char* fallback) { return text == nullptr ? fallback : text; }

// A struct as its caller's header knew it: what lies beyond is absent.
template <typename T>
Result<T> sized(const T* given, const char* what) {
  T full{};
  if (given == nullptr || given->size < sizeof(size_t)) return invalid(std::string(what) + ": the size field is not set; start from the INIT macro", what);
  std::memcpy(&full, given, std::min(given->size, sizeof(T)));
  return full;
}

Status open(const espalier_open_options* given, espalier_engine** out) {
  if (out == nullptr) return invalid("engine: expected a place for the handle", "engine");
  *out = nullptr;
  ESPALIER_ASSIGN(const espalier_open_options o, sized(given, "options"));
  OpenOptions options;
  options.model = text_or(o.model, "");
  options.unit = text_or(o.unit, "cpu");
  options.weights = text_or(o.weights, "auto");
  options.kv = text_or(o.kv, "fp16");
  options.threads = o.threads;
  options.context = o.context;
  options.cache = o.no_cache == 0;
  options.speculate = text_or(o.speculate, "auto");
  options.drafter = text_or(o.drafter, "");
  if (o.on_progress != nullptr) options.on_progress = [o](uint64_t done, uint64_t total) { return o.on_progress(done, total, o.user) != 0; };
  ESPALIER_ASSIGN(Engine engine, Engine::open(options));
  *out = new espalier_engine{std::move(engine)};
  return {};
}

Status make_request(espalier_engine* engine, const Prompt& prompt, const GenerateOptions& options, std::vector<std::string> warnings,
                    espalier_request** out) {
  if (out == nullptr || engine == nullptr) return invalid("expected an engine and a place for the request", "request");
  *out = nullptr;
  ESPALIER_ASSIGN(Request request, engine->engine.request(prompt, options));
  *out = new espalier_request{engine->engine, std::move(request), std::move(warnings)};
  return {};
}

Status new_request(espalier_engine* engine, const char* body, espalier_request** out) {
  auto value = parse_json(text_or(body, ""));
  if (!value.ok()) return {Code::invalid_argument, "body: " + value.status().message(), "messages"};
  ESPALIER_ASSIGN(Body read, read_body(*value, {}));
  return make_request(engine, read.prompt, read.options, std::move(read.warnings), out);
}

Status raw_request(espalier_engine* engine, const char* text, const char* options, espalier_request** out) {
  Body read;
  if (options != nullptr) {
    auto value = parse_json(options);
    if (!value.ok()) return {Code::invalid_argument, "options: " + value.status().message(), "options"};
    ESPALIER_TRY(read_options(*value, read));
  }
  read.prompt = {};
  read.prompt.raw = text_or(text, "");
  return make_request(engine, read.prompt, read.options, std::move(read.warnings), out);
}

std::string call_json(const ToolCall& call) {
  Value v = Value::object();
  v.set("id", call.id);
  v.set("name", call.name);
  v.set("arguments", call.arguments);
  return to_json(v);
}

Status run(espalier_request* request, const espalier_callbacks* given, espalier_answer** out) {
  if (request == nullptr || out == nullptr) return invalid("expected a request and a place for the answer", "answer");
  *out = nullptr;
  Callbacks callbacks;
  if (given != nullptr) {
    ESPALIER_ASSIGN(const espalier_callbacks c, sized(given, "callbacks"));
    if (c.on_delta != nullptr)
      callbacks.on_delta = [c, request](const Delta& d) {
        const std::string call = d.call == nullptr ? std::string() : call_json(*d.call);
        const std::string text = d.call == nullptr ? std::string(d.text) : call;
        if (c.on_delta(static_cast<espalier_delta_kind>(d.kind), text.c_str(), text.size(), c.user) == 0) request->request.cancel();
      };
    if (c.on_prefill != nullptr)
      callbacks.on_prefill = [c, request](int64_t done, int64_t total) {
        if (c.on_prefill(done, total, c.user) == 0) request->request.cancel();
      };
  }
  ESPALIER_ASSIGN(Answer answer, request->request.run(callbacks));
  answer.warnings.insert(answer.warnings.begin(), request->warnings.begin(), request->warnings.end());
  std::string json = request->engine.to_json(answer);
  *out = new espalier_answer{std::move(answer), std::move(json)};
  return {};
}

}  // namespace
}  // namespace espalier

extern "C" {

const char* espalier_version(void) { return espalier::version(); }

espalier_code espalier_status_code(const espalier_status* s) { return s == nullptr ? ESPALIER_OK : static_cast<espalier_code>(s->status.code()); }
const char* espalier_status_message(const espalier_status* s) { return s == nullptr ? "" : s->status.message().c_str(); }
const char* espalier_status_field(const espalier_status* s) { return s == nullptr ? "" : s->status.field().c_str(); }
void espalier_status_free(espalier_status* s) {
  if (s != &espalier::no_memory) delete s;
}

espalier_status* espalier_open(const espalier_open_options* options, espalier_engine** engine) {
  return espalier::guarded([&] { return espalier::open(options, engine); });
}
void espalier_close(espalier_engine* engine) { delete engine; }

espalier_status* espalier_request_new(espalier_engine* engine, const char* body, espalier_request** request) {
  return espalier::guarded([&] { return espalier::new_request(engine, body, request); });
}
espalier_status* espalier_request_raw(espalier_engine* engine, const char* text, const char* options, espalier_request** request) {
  return espalier::guarded([&] { return espalier::raw_request(engine, text, options, request); });
}
void espalier_request_free(espalier_request* request) { delete request; }

espalier_status* espalier_run(espalier_request* request, const espalier_callbacks* callbacks, espalier_answer** answer) {
  return espalier::guarded([&] { return espalier::run(request, callbacks, answer); });
}
void espalier_cancel(espalier_request* request) {
  if (request != nullptr) request->request.cancel();
}

const char* espalier_answer_text(const espalier_answer* a) { return a->answer.text.c_str(); }
const char* espalier_answer_finish_reason(const espalier_answer* a) { return espalier::finish_reason_name(a->answer.finish_reason); }
const char* espalier_answer_json(const espalier_answer* a) { return a->json.c_str(); }
size_t espalier_answer_token_ids(const espalier_answer* a, const int32_t** ids) {
  *ids = a->answer.token_ids.data();
  return a->answer.token_ids.size();
}
void espalier_answer_timings(const espalier_answer* a, espalier_timings* out) {
  const espalier::Timings& t = a->answer.timings;
  const espalier_timings full = {out->size, t.load_ms, t.prefill_ms, t.decode_ms, t.ttft_ms, t.prefill_tokens, t.reused_tokens, t.decode_tokens};
  std::memcpy(out, &full, std::min(out->size, sizeof full));
}
void espalier_answer_free(espalier_answer* answer) { delete answer; }

}  // extern "C"
