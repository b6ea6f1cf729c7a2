#include "engine/score.h"

#include <algorithm>
#include <numeric>

namespace espalier {
namespace {

// All logits of a chunk are held at once: 64 rows of 65,536 are 16 MB.
constexpr size_t kScoreRows = 64;

Status check_text(const Engine::Impl& engine, std::span<const int32_t> ids, int32_t alternatives) {
  if (ids.size() < 2) return invalid("a score needs at least two tokens, found " + std::to_string(ids.size()), "text");
  if (static_cast<int64_t>(ids.size()) > engine.context())
    return invalid("the text has " + std::to_string(ids.size()) + " tokens, and the context holds " + std::to_string(engine.context()), "text");
  for (const int32_t id : ids)
    if (id < 0 || id >= engine.info.vocabulary)
      return invalid("the text holds token " + std::to_string(id) + ", and the model has " + std::to_string(engine.info.vocabulary), "text");
  if (alternatives < 0 || alternatives > 100)
    return invalid("logprobs: expected 0 to 100 alternatives, found " + std::to_string(alternatives), "logprobs");
  return {};
}

}  // namespace

Result<std::vector<Score>> score_tokens(Engine::Impl& engine, std::span<const int32_t> ids, int32_t alternatives,
                                        const std::function<bool(int64_t, int64_t)>& on_progress) {
  ESPALIER_TRY(check_text(engine, ids, alternatives));
  ESPALIER_ASSIGN(std::unique_ptr<State> state, engine.model->make_state());
  const size_t vocabulary = static_cast<size_t>(engine.info.vocabulary), total = ids.size() - 1;
  const size_t k = std::min(static_cast<size_t>(alternatives), vocabulary);
  const uint32_t wants = kWantLogits | kWantLse | (k > 0 ? kWantTopK : 0u);
  State* const states[] = {state.get()};
  std::vector<Score> scores;
  Outputs out;
  for (size_t begin = 0; begin < total; begin += kScoreRows) {
    const size_t n = std::min(kScoreRows, total - begin);
    std::vector<Row> rows(n);
    for (size_t i = 0; i < n; ++i)
      rows[i] = {ids[begin + i], 0, static_cast<int32_t>(begin + i), i == 0 ? kState : static_cast<int32_t>(i) - 1, wants};
    {
      const std::lock_guard<std::mutex> lock(engine.calls);
      ESPALIER_ASSIGN([[maybe_unused]] const CallStats stats,
                      engine.model->run({{Role::step, kNone}, rows, states, {}, static_cast<uint32_t>(k), &out}));
    }
    std::vector<int32_t> path(n);
    std::iota(path.begin(), path.end(), 0);
    ESPALIER_TRY(state->commit(path));
    for (size_t i = 0; i < n; ++i) {
      const int32_t next = ids[begin + i + 1];
      Score s{next, out.logits[i * vocabulary + static_cast<size_t>(next)] - out.lse[i], {}};
      for (size_t t = 0; t < k; ++t) s.top.emplace_back(out.top[i * k + t].id, out.top[i * k + t].logit - out.lse[i]);
      scores.push_back(std::move(s));
    }
    if (on_progress && !on_progress(static_cast<int64_t>(begin + n), static_cast<int64_t>(total)))
      return Status(Code::cancelled, "scoring was cancelled");
  }
  return scores;
}

}  // namespace espalier
