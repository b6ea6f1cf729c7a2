#include "measure/bench_prompts.h"

#include <algorithm>

#include "base/json.h"
#include "base/lines.h"
#include "engine/body.h"

namespace espalier {
namespace {

Result<ReadPrompt> read_line(const Engine::Impl& engine, const std::string& line) {
  ESPALIER_ASSIGN(const Value v, parse_json(line));
  const Value* ids = v.find("prompt_ids");
  if (ids == nullptr) {
    ESPALIER_ASSIGN(const Body body, read_body(v, {}));
    return read_prompt(engine, body.prompt);
  }
  if (!ids->is_array()) return invalid("prompt_ids: expected an array of token ids", "prompt_ids");
  ReadPrompt out;
  for (const Value& id : ids->as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= engine.info.vocabulary) return invalid("prompt_ids: expected token ids of the model", "prompt_ids");
    out.ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  return out;
}

}  // namespace

Result<std::vector<ReadPrompt>> read_bench_prompts(const Engine::Impl& engine, const std::string& text, const std::string& where) {
  std::vector<ReadPrompt> out;
  for (const auto& [line, number] : record_lines(text)) {
    auto read = read_line(engine, std::string(line));
    if (!read.ok()) return std::move(read).status().with_context(where + ", line " + std::to_string(number));
    out.push_back(std::move(read).value());
  }
  if (out.empty()) return invalid(where + ": expected at least one prompt, one a line", "jsonl");
  return out;
}

Result<PreparedRequest> bench_request(const Engine::Impl& engine, const ReadPrompt& prompt, double temperature, int64_t max_tokens, uint64_t seed, bool ends) {
  GenerateOptions options;
  options.temperature = temperature;
  options.max_tokens = std::min(max_tokens, std::max<int64_t>(engine.context() - static_cast<int64_t>(prompt.ids.size()), 1));
  options.seed = seed;
  ESPALIER_ASSIGN(PreparedRequest request, prepare_request(engine, prompt, options, now_ns()));
  if (!ends) request.answer.end_ids.clear();
  return request;
}

}  // namespace espalier
