#include "engine/decoder.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace espalier {

Result<SequenceId> Decoder::open(State* state, std::vector<int32_t> text, int32_t prompt_length, Sampling rules, int32_t logprobs) {
  const std::span<const int32_t> held = state->tokens();
  if (text.size() <= held.size() || !std::equal(held.begin(), held.end(), text.begin()))
    return invalid("the state holds " + std::to_string(held.size()) + " tokens that are not a proper prefix of the " +
                   std::to_string(text.size()) + " given");
  Sequence s{state, std::move(text), Sampler(std::move(rules)), {}, logprobs};
  const std::span<const int32_t> all(s.text);
  const size_t prompt = std::clamp<size_t>(static_cast<size_t>(std::max(prompt_length, 0)), 0, all.size());
  s.history.add_prompt(all.first(prompt));
  for (const int32_t id : all.subspan(prompt)) s.history.push(id);
  sequences_.emplace(next_id_, std::move(s));
  return next_id_++;
}

int32_t Decoder::waiting_rows(SequenceId id) const {
  const Sequence& s = sequences_.at(id);
  return static_cast<int32_t>(s.text.size()) - s.state->length();
}

uint32_t Decoder::wants(const Sequence& s) const {
  uint32_t wants = 0;
  switch (s.sampler.needs()) {
    case Sampler::Needs::argmax: wants = kWantArgmax; break;
    case Sampler::Needs::top: wants = kWantTopK; break;
    case Sampler::Needs::logits: wants = kWantLogits; break;
  }
  if (s.logprobs >= 0) wants |= kWantLogits | kWantLse;
  if (s.logprobs > 0) wants |= kWantTopK;
  return wants;
}

void Decoder::gather(int32_t prompt_rows_max, int32_t stop_at, StepReport& report) {
  rows_.clear();
  states_.clear();
  top_k_ = 0;
  int32_t room = std::max(prompt_rows_max, 1);
  for (auto& [id, s] : sequences_) {
    const int32_t held = s.state->length(), size = static_cast<int32_t>(s.text.size());
    const int32_t end = stop_at > held ? std::min(stop_at, size) : size;
    s.row_count = end - held;
    if (size - held > 1) {
      s.row_count = std::min(s.row_count, room);
      room -= s.row_count;
      report.prompt_rows += s.row_count;
    }
    s.draws = held + s.row_count == size;
    s.first_row = static_cast<int32_t>(rows_.size());
    if (s.row_count == 0) continue;
    const int32_t index = static_cast<int32_t>(states_.size());
    states_.push_back(s.state);
    for (int32_t i = 0; i < s.row_count; ++i)
      rows_.push_back({s.text[static_cast<size_t>(held + i)], index, held + i, i == 0 ? kState : s.first_row + i - 1, 0});
    if (!s.draws) continue;
    rows_.back().wants = wants(s);
    if (s.sampler.needs() == Sampler::Needs::top) top_k_ = std::max(top_k_, static_cast<uint32_t>(s.sampler.rules().top_k));
    top_k_ = std::max(top_k_, static_cast<uint32_t>(std::max(s.logprobs, 0)));
  }
  top_k_ = std::min(top_k_, static_cast<uint32_t>(model_.program().vocabulary));
}

Result<StepReport> Decoder::step(int32_t prompt_rows_max, int32_t stop_at) {
  ESP_CHECK(!sequences_.empty());
  StepReport report;
  gather(prompt_rows_max, stop_at, report);
  const Call call{{Role::step, kNone}, rows_, states_, {}, top_k_, &out_};
  ESPALIER_ASSIGN(report.call, model_.run(call));
  Cursor cursor;
  for (auto& [id, s] : sequences_) {
    if (s.row_count == 0) continue;
    std::vector<int32_t> path(static_cast<size_t>(s.row_count));
    std::iota(path.begin(), path.end(), s.first_row);
    ESPALIER_TRY(s.state->commit(path));
    if (s.draws) report.drawn.push_back(draw(id, s, cursor));
  }
  return report;
}

DrawnToken Decoder::draw(SequenceId id, Sequence& s, Cursor& cursor) {
  const uint32_t asked = wants(s);
  const size_t vocabulary = static_cast<size_t>(model_.program().vocabulary);
  std::span<const float> logits;
  std::span<const TopEntry> top;
  int32_t argmax = 0;
  float lse = 0;
  if ((asked & kWantArgmax) != 0) argmax = out_.argmax[cursor.argmax++];
  if ((asked & kWantLogits) != 0) logits = std::span<const float>(out_.logits).subspan(vocabulary * cursor.logits++, vocabulary);
  if ((asked & kWantTopK) != 0) top = std::span<const TopEntry>(out_.top).subspan(top_k_ * cursor.top++, top_k_);
  if ((asked & kWantLse) != 0) lse = out_.lse[cursor.lse++];

  DrawnToken drawn{id, argmax, static_cast<int32_t>(s.text.size()), {}};
  if (s.sampler.needs() == Sampler::Needs::top) {
    const size_t k = std::min<size_t>(static_cast<size_t>(s.sampler.rules().top_k), top.size());
    drawn.id = s.sampler.choose(top.first(k), drawn.position);
  } else if (s.sampler.needs() == Sampler::Needs::logits) {
    drawn.id = s.sampler.choose(logits, s.history, drawn.position);
  }
  if (s.logprobs >= 0) {
    drawn.logprobs.logprob = logits[static_cast<size_t>(drawn.id)] - lse;
    const size_t k = std::min<size_t>(static_cast<size_t>(s.logprobs), top.size());
    for (const TopEntry& e : top.first(k)) drawn.logprobs.top.push_back({e.id, e.logit - lse});
  }
  s.text.push_back(drawn.id);
  s.history.push(drawn.id);
  return drawn;
}

}  // namespace espalier
