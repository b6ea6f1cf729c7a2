#include "engine/decoder.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace espalier {

Decoder::Decoder(Model& model, std::mutex* turns, Drafting* drafting) : model_(model), turns_(turns), drafting_(drafting) {
  if (drafting_ == nullptr) return;
  for (const std::string& name : drafting_->taps()) out_.taps.push_back({name, {}});
}

Result<SequenceId> Decoder::open(State* state, std::vector<int32_t> text, int32_t prompt_length, Sampling rules, int32_t logprobs,
                                 TextLimits limits) {
  const std::span<const int32_t> held = state->tokens();
  if (text.size() <= held.size() || !std::equal(held.begin(), held.end(), text.begin()))
    return invalid("the state holds " + std::to_string(held.size()) + " tokens that are not a proper prefix of the " +
                   std::to_string(text.size()) + " given");
  Sequence s{state, std::move(text), Sampler(std::move(rules)), {}, logprobs, std::move(limits)};
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

void Decoder::grow_trees(const Scope& scope) {
  if (drafting_ == nullptr) return;
  std::vector<DraftAsk> asked;
  std::vector<Sequence*> asking;
  for (auto& [id, s] : sequences_) {
    s.tree.nodes.clear();
    const int32_t depth_max = s.limits.tokens_max - s.drawn - 1;
    if (s.complete || (scope.only >= 0 && scope.only != id) || depth_max < 0 || waiting_rows(id) != 1 || !drafting_->follows(id)) continue;
    asked.push_back({id, s.text, depth_max});
    asking.push_back(&s);
  }
  if (asked.empty()) return;
  StepReport plain;
  gather(scope, plain);  // what the call will hold without them
  std::vector<DraftTree> trees(asked.size());
  drafting_->draft(asked, static_cast<int32_t>(rows_.size() - asked.size()), trees);
  for (size_t i = 0; i < trees.size(); ++i) {
    const auto fits = [&](const DraftNode& n) { return n.depth <= asked[i].depth_max && n.token < model_.program().vocabulary; };
    if (is_well_formed(trees[i]) && std::all_of(trees[i].nodes.begin(), trees[i].nodes.end(), fits)) asking[i]->tree = std::move(trees[i]);
  }
}

void Decoder::gather(const Scope& scope, StepReport& report) {
  rows_.clear();
  states_.clear();
  top_k_ = 0;
  report.prompt_rows = report.drafted_rows = 0;
  int32_t room = std::max(scope.prompt_rows_max, 1);
  for (auto& [id, s] : sequences_) {
    const int32_t held = s.state->length(), size = static_cast<int32_t>(s.text.size());
    const int32_t end = scope.stop_at > held ? std::min(scope.stop_at, size) : size;
    s.row_count = s.complete || (scope.only >= 0 && scope.only != id) ? 0 : end - held;
    if (s.row_count > 0 && size - held > 1) {
      s.row_count = std::min(s.row_count, room);
      room -= s.row_count;
      report.prompt_rows += s.row_count;
    }
    s.draws = s.row_count > 0 && held + s.row_count == size;
    s.first_row = static_cast<int32_t>(rows_.size());
    if (s.row_count == 0) continue;
    const int32_t index = static_cast<int32_t>(states_.size());
    states_.push_back(s.state);
    const uint32_t taps = drafting_ != nullptr && !out_.taps.empty() && drafting_->reads_taps(id) ? uint32_t{kWantTaps} : 0u;
    for (int32_t i = 0; i < s.row_count; ++i)
      rows_.push_back({s.text[static_cast<size_t>(held + i)], index, held + i, i == 0 ? kState : s.first_row + i - 1, taps});
    if (!s.draws) continue;
    rows_.back().wants |= wants(s);
    add_tree_rows(s, index, report);
    if (s.sampler.needs() == Sampler::Needs::top) top_k_ = std::max(top_k_, static_cast<uint32_t>(s.sampler.rules().top_k));
    top_k_ = std::max(top_k_, static_cast<uint32_t>(std::max(s.logprobs, 0)));
  }
  top_k_ = std::min(top_k_, static_cast<uint32_t>(model_.program().vocabulary));
  index_outputs();
}

void Decoder::add_tree_rows(Sequence& s, int32_t index, StepReport& report) {
  const Row root = rows_.back();
  const int32_t root_row = static_cast<int32_t>(rows_.size()) - 1;
  for (const DraftNode& n : s.tree.nodes)
    rows_.push_back({n.token, index, root.position + n.depth, n.parent == kRoot ? root_row : root_row + 1 + n.parent, root.wants});
  report.drafted_rows += static_cast<int32_t>(s.tree.nodes.size());
}

void Decoder::index_outputs() {
  entries_.resize(rows_.size());
  Entries next;
  for (size_t r = 0; r < rows_.size(); ++r) {
    entries_[r] = next;
    const uint32_t wants = rows_[r].wants;
    next.argmax += (wants & kWantArgmax) != 0;
    next.logits += (wants & kWantLogits) != 0;
    next.top += (wants & kWantTopK) != 0;
    next.lse += (wants & kWantLse) != 0;
    next.taps += (wants & kWantTaps) != 0;
  }
}

Result<CallStats> Decoder::run_rows() {
  std::unique_lock<std::mutex> turn;
  if (turns_ != nullptr) turn = std::unique_lock<std::mutex>(*turns_);
  return model_.run({{Role::step, kNone}, rows_, states_, {}, top_k_, &out_});
}

Result<StepReport> Decoder::step(int32_t prompt_rows_max, int32_t stop_at, SequenceId only) {
  ESP_CHECK(!sequences_.empty());
  const Scope scope{prompt_rows_max, stop_at, only};
  StepReport report;
  const int64_t t0 = now_ns();
  grow_trees(scope);
  gather(scope, report);
  report.draft_ns = now_ns() - t0;
  if (rows_.empty()) return report;
  auto stats = run_rows();
  if (!stats.ok() && report.drafted_rows > 0) {
    // A row that the text itself never reaches may not end it (a logit there that is not finite).
    report.drafts_failure = stats.status().message();
    for (auto& [id, s] : sequences_) s.tree.nodes.clear();
    gather(scope, report);
    stats = run_rows();
  }
  if (!stats.ok()) {
    if (drafting_ != nullptr) drafting_->abandon();
    return std::move(stats).status();
  }
  report.call = *stats;
  kept_.clear();
  kept_tokens_.clear();
  features_.clear();
  for (auto& [id, s] : sequences_)
    if (s.row_count > 0) ESPALIER_TRY(settle(id, s, report));
  const int64_t t1 = now_ns();
  hand_over_features();
  report.commit_ns += now_ns() - t1;
  report.step_ns = now_ns() - t0;
  if (drafting_ != nullptr) drafting_->observe(report);
  return report;
}

// Draws what the text grows by, and commits what of it has run: all but the newest token.
Status Decoder::settle(SequenceId id, Sequence& s, StepReport& report) {
  std::vector<int32_t> path(static_cast<size_t>(s.row_count));
  for (int32_t i = 0; i < s.row_count; ++i) path[static_cast<size_t>(i)] = s.first_row + i;
  if (s.draws) {
    const int32_t root_row = path.back();
    const auto row_of = [&](int32_t node) { return node == kRoot ? root_row : root_row + 1 + node; };
    const Acceptance kept = accept(s.tree, [&](int32_t node) { return s.complete ? -1 : choose(id, s, row_of(node), report); });
    for (size_t i = 0; i + 1 < kept.tokens.size(); ++i) path.push_back(row_of(kept.path[i]));
    if (drafting_ != nullptr && drafting_->follows(id)) drafting_->settle(id, s.tree, kept);
  }
  const int64_t t0 = now_ns();
  ESPALIER_TRY(s.state->commit(path));
  report.commit_ns += now_ns() - t0;
  collect_features(id, s, path);
  return {};
}

int32_t Decoder::choose(SequenceId id, Sequence& s, int32_t row, StepReport& report) {
  DrawnToken drawn = draw(id, s, row);
  s.text.push_back(drawn.id);
  s.history.push(drawn.id);
  ++s.drawn;
  s.complete = s.limits.complete && s.limits.complete(drawn);
  const int32_t token = drawn.id;
  report.drawn.push_back(std::move(drawn));
  return token;
}

DrawnToken Decoder::draw(SequenceId id, Sequence& s, int32_t row) {
  const uint32_t asked = rows_[static_cast<size_t>(row)].wants;
  const Entries& at = entries_[static_cast<size_t>(row)];
  const size_t vocabulary = static_cast<size_t>(model_.program().vocabulary);
  std::span<const float> logits;
  std::span<const TopEntry> top;
  int32_t argmax = 0;
  float lse = 0;
  if ((asked & kWantArgmax) != 0) argmax = out_.argmax[at.argmax];
  if ((asked & kWantLogits) != 0) logits = std::span<const float>(out_.logits).subspan(vocabulary * at.logits, vocabulary);
  if ((asked & kWantTopK) != 0) top = std::span<const TopEntry>(out_.top).subspan(top_k_ * at.top, top_k_);
  if ((asked & kWantLse) != 0) lse = out_.lse[at.lse];

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
  return drawn;
}

void Decoder::collect_features(SequenceId id, const Sequence& s, std::span<const int32_t> path) {
  if (drafting_ == nullptr || path.empty() || !drafting_->reads_taps(id)) return;
  kept_.push_back({id, s.state->length() - static_cast<int32_t>(path.size()), {}, nullptr});
  const size_t first = kept_tokens_.size();
  for (const int32_t r : path) {
    kept_tokens_.push_back(rows_[static_cast<size_t>(r)].token);
    for (const NamedOutput& tap : out_.taps) {
      const size_t width = static_cast<size_t>(model_.program().hidden);
      const auto from = tap.data.begin() + static_cast<ptrdiff_t>(entries_[static_cast<size_t>(r)].taps * width);
      features_.insert(features_.end(), from, from + static_cast<ptrdiff_t>(width));
    }
  }
  // Only the sizes are final until all sequences are in; hand_over_features sets the pointers.
  kept_.back().tokens = {kept_tokens_.data(), kept_tokens_.size() - first};
}

void Decoder::hand_over_features() {
  if (kept_.empty()) return;
  size_t at = 0;
  const size_t width = static_cast<size_t>(model_.program().hidden) * out_.taps.size();
  for (KeptRows& k : kept_) {
    const size_t n = k.tokens.size();
    k.tokens = std::span<const int32_t>(kept_tokens_).subspan(at, n);
    k.features = width == 0 ? nullptr : features_.data() + at * width;
    at += n;
  }
  drafting_->keep(kept_);
}

}  // namespace espalier
