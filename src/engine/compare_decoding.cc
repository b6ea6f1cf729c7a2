#include "engine/compare_decoding.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/prompt.h"

namespace espalier {
namespace {

Result<std::vector<int32_t>> question(const Engine::Impl& engine) {
  Prompt prompt;
  if (engine.chat)
    prompt.messages = R"([{"role":"user","content":"Name the planets of the solar system, and say one thing about each."}])";
  else
    prompt.raw = "The planets of the solar system are";
  ESPALIER_ASSIGN(ReadPrompt read, read_prompt(engine, prompt));
  if (read.ids.empty()) return invalid("the tokenizer makes no tokens of a plain question");
  return std::move(read.ids);
}

// A call over `ids` from where the state ends; all of it is kept.
Status run_rows(Engine::Impl& engine, State& state, std::span<const int32_t> ids, bool all_want, Outputs& out) {
  std::vector<Row> rows(ids.size());
  const int32_t held = state.length(), n = static_cast<int32_t>(ids.size());
  for (int32_t i = 0; i < n; ++i)
    rows[static_cast<size_t>(i)] = {ids[static_cast<size_t>(i)], 0, held + i, i == 0 ? kState : i - 1,
                                    all_want || i == n - 1 ? uint32_t{kWantLogits | kWantArgmax} : 0u};
  State* const states[] = {&state};
  {
    const std::lock_guard<std::mutex> lock(engine.calls);
    ESPALIER_ASSIGN([[maybe_unused]] const CallStats stats, engine.model->run({{Role::step, kNone}, rows, states, {}, 0, &out}));
  }
  std::vector<int32_t> path(ids.size());
  std::iota(path.begin(), path.end(), 0);
  return state.commit(path);
}

float gap_of_best(std::span<const float> logits) {
  float best = -INFINITY, next = -INFINITY;
  for (const float x : logits) {
    next = std::max(next, std::min(best, x));
    best = std::max(best, x);
  }
  return best - next;
}

}  // namespace

Result<DecodingComparison> compare_decoding(Engine::Impl& engine, int32_t tokens, const std::function<bool(int64_t, int64_t)>& on_progress) {
  ESPALIER_ASSIGN(std::vector<int32_t> text, question(engine));
  const size_t prompt = text.size(), vocabulary = static_cast<size_t>(engine.info.vocabulary);
  if (static_cast<int64_t>(prompt) + tokens > engine.context())
    tokens = static_cast<int32_t>(std::max<int64_t>(engine.context() - static_cast<int64_t>(prompt), 1));

  std::vector<float> logits;
  std::vector<int32_t> chosen;
  Outputs out;
  ESPALIER_ASSIGN(std::unique_ptr<State> state, engine.model->make_state());
  ESPALIER_TRY(run_rows(engine, *state, text, false, out));
  for (int32_t i = 0;; ++i) {
    logits.insert(logits.end(), out.logits.begin(), out.logits.end());
    chosen.push_back(out.argmax[0]);
    text.push_back(out.argmax[0]);
    if (on_progress && !on_progress(i + 1, tokens + 1)) return Status(Code::cancelled, "cancelled");
    if (i + 1 == tokens || std::binary_search(engine.end_ids.begin(), engine.end_ids.end(), chosen.back())) break;
    ESPALIER_TRY(run_rows(engine, *state, std::span(&chosen.back(), 1), false, out));
  }

  ESPALIER_ASSIGN(std::unique_ptr<State> again, engine.model->make_state());
  ESPALIER_TRY(run_rows(engine, *again, std::span(text).first(text.size() - 1), true, out));
  DecodingComparison result;
  result.tokens = static_cast<int64_t>(chosen.size());
  const std::span<const float> second = std::span<const float>(out.logits).subspan((prompt - 1) * vocabulary);
  result.same_bits = std::equal(logits.begin(), logits.end(), second.begin(), second.end());
  for (size_t i = 0; i < chosen.size(); ++i) {
    const int32_t other = out.argmax[prompt - 1 + i];
    if (other == chosen[i]) continue;
    result.difference = {static_cast<int64_t>(i), chosen[i], other, gap_of_best(second.subspan(i * vocabulary, vocabulary))};
    break;
  }
  return result;
}

}  // namespace espalier
