#include "engine/answer_json.h"

#include <cmath>

namespace espalier {
namespace {

Value ids(const std::vector<int32_t>& list) {
  Value out = Value::array();
  for (const int32_t id : list) out.push(id);
  return out;
}

// A float as the shortest decimal that reads back as it, not as the double beside it.
Value number(float x) {
  char text[40];
  for (int digits = 6; digits <= 9; ++digits) {
    snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(x));
    if (std::strtof(text, nullptr) == x) break;
  }
  return std::strtod(text, nullptr);
}

Value milliseconds(double ms) { return std::round(ms * 1000) / 1000; }

Value tool_call(const ToolCall& call) {
  Value function = Value::object();
  function.set("name", call.name);
  function.set("arguments", call.arguments);
  Value out = Value::object();
  out.set("id", call.id);
  out.set("type", "function");
  out.set("function", std::move(function));
  return out;
}

Value timings(const Timings& t) {
  Value out = Value::object();
  out.set("load_ms", milliseconds(t.load_ms));
  out.set("prefill_ms", milliseconds(t.prefill_ms));
  out.set("decode_ms", milliseconds(t.decode_ms));
  out.set("ttft_ms", milliseconds(t.ttft_ms));
  out.set("prefill_tokens", t.prefill_tokens);
  out.set("reused_tokens", t.reused_tokens);
  out.set("decode_tokens", t.decode_tokens);
  return out;
}

Value placement(const EngineInfo& info, bool drafts) {
  Value out = Value::object();
  out.set("prefill", info.unit);
  out.set("decode", info.unit);
  out.set("draft", drafts && !info.drafter.empty() ? Value(info.unit) : Value());
  return out;
}

Value speculation(const SpeculationReport& r) {
  Value out = Value::object();
  out.set("mode", r.mode);
  out.set("cycles", r.cycles);
  out.set("rows", r.rows);
  out.set("accepted", r.accepted);
  Value depths = Value::array();
  for (const SpeculationReport::Depth& d : r.by_depth) {
    Value one = Value::object();
    one.set("offered", d.offered);
    one.set("accepted", d.accepted);
    depths.push(std::move(one));
  }
  out.set("by_depth", std::move(depths));
  Value sources = Value::object();
  for (const SpeculationReport::Source& s : r.by_source) {
    Value one = Value::object();
    one.set("drafted", s.drafted);
    one.set("offered", s.offered);
    one.set("accepted", s.accepted);
    sources.set(s.name, std::move(one));
  }
  out.set("by_source", std::move(sources));
  Value ms = Value::object();
  ms.set("draft", milliseconds(r.draft_ms));
  ms.set("verify", milliseconds(r.verify_ms));
  ms.set("commit", milliseconds(r.commit_ms));
  ms.set("host", milliseconds(r.host_ms));
  out.set("ms", std::move(ms));
  return out;
}

}  // namespace

Value to_json_value(const TokenLogprob& entry) {
  Value top = Value::array();
  for (const auto& [id, logprob] : entry.top) {
    Value one = Value::object();
    one.set("id", id);
    one.set("logprob", number(logprob));
    top.push(std::move(one));
  }
  Value out = Value::object();
  out.set("id", entry.id);
  out.set("logprob", number(entry.logprob));
  out.set("top", std::move(top));
  return out;
}

Value to_json_value(const Answer& answer, const EngineInfo& info) {
  Value out = Value::object();
  out.set("text", answer.text);
  out.set("reasoning", answer.reasoning ? Value(*answer.reasoning) : Value());
  Value calls = Value::array();
  for (const ToolCall& call : answer.tool_calls) calls.push(tool_call(call));
  out.set("tool_calls", std::move(calls));
  out.set("token_ids", ids(answer.token_ids));
  out.set("prompt_token_ids", ids(answer.prompt_token_ids));
  out.set("finish_reason", finish_reason_name(answer.finish_reason));
  out.set("stop_text", answer.stop_text ? Value(*answer.stop_text) : Value());
  Value logprobs;
  if (answer.logprobs) {
    logprobs = Value::array();
    for (const TokenLogprob& entry : *answer.logprobs) logprobs.push(to_json_value(entry));
  }
  out.set("logprobs", std::move(logprobs));
  out.set("seed", answer.seed);
  out.set("timings", timings(answer.timings));
  out.set("placement", placement(info, answer.speculation.has_value()));
  out.set("unit", info.unit);
  out.set("kernels", info.kernels);
  out.set("weights", info.weights);
  out.set("kv", info.kv);
  out.set("speculation", answer.speculation ? speculation(*answer.speculation) : Value());
  Value warnings = Value::array();
  for (const std::string& w : answer.warnings) warnings.push(w);
  out.set("warnings", std::move(warnings));
  return out;
}

Value error_json(const Status& status) {
  Value error = Value::object();
  error.set("message", status.message());
  error.set("field", status.field().empty() ? Value() : Value(status.field()));
  Value out = Value::object();
  out.set("error", std::move(error));
  return out;
}

}  // namespace espalier
