#include "measure/fidelity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier {
namespace {

constexpr size_t kRows = 64;  // of a call
constexpr int64_t kFirstBand = 128;

// Bands double: [0, 128), [128, 256), [256, 512) and so on.
size_t band_of(int64_t position) {
  size_t band = 0;
  for (int64_t end = kFirstBand; position >= end; end *= 2) ++band;
  return band;
}

struct Choice {
  int32_t best = 0;
  double lse = 0;
};

Choice choose(std::span<const float> logits) {
  Choice c;
  const auto at = std::max_element(logits.begin(), logits.end());
  c.best = static_cast<int32_t>(at - logits.begin());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - static_cast<double>(*at));
  c.lse = static_cast<double>(*at) + std::log(sum);
  return c;
}

double divergence(std::span<const float> p, double p_lse, std::span<const float> q, double q_lse) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double lp = static_cast<double>(p[i]) - p_lse, lq = static_cast<double>(q[i]) - q_lse;
    sum += std::exp(lp) * (lp - lq);
  }
  return std::max(sum, 0.0);
}

// One model reading one text.
class Reader {
 public:
  static Result<Reader> make(Engine::Impl& engine) {
    ESPALIER_ASSIGN(std::unique_ptr<State> state, engine.model->make_state());
    return Reader(engine, std::move(state));
  }

  // Logits of rows [begin, end) of the text, (rows, vocabulary).
  Result<std::span<const float>> read(std::span<const int32_t> ids, size_t begin, size_t end) {
    std::vector<Row> rows;
    for (size_t p = begin; p < end; ++p) rows.push_back({ids[p], 0, static_cast<int32_t>(p), p == begin ? kState : static_cast<int32_t>(p - begin) - 1, kWantLogits});
    State* const states[] = {state_.get()};
    {
      const std::lock_guard<std::mutex> lock(engine_->calls);
      ESPALIER_ASSIGN([[maybe_unused]] const CallStats stats, engine_->model->run({{Role::step, kNone}, rows, states, {}, 0, &out_}));
    }
    std::vector<int32_t> path(rows.size());
    std::iota(path.begin(), path.end(), 0);
    ESPALIER_TRY(state_->commit(path));
    return std::span<const float>(out_.logits);
  }

 private:
  Reader(Engine::Impl& engine, std::unique_ptr<State> state) : engine_(&engine), state_(std::move(state)) {}
  Engine::Impl* engine_;
  std::unique_ptr<State> state_;
  Outputs out_;
};

class Comparison {
 public:
  Comparison(Engine::Impl& model, Engine::Impl& reference, int64_t total, const FidelityProgress& progress)
      : model_(model), reference_(reference), total_(total), progress_(progress), vocabulary_(static_cast<size_t>(model.info.vocabulary)) {}

  Status compare(const FidelityText& text) {
    ESPALIER_ASSIGN(Reader model, Reader::make(model_));
    ESPALIER_ASSIGN(Reader reference, Reader::make(reference_));
    ++out_.texts;
    const size_t positions = text.ids.size() - 1;
    for (size_t begin = 0; begin < positions; begin += kRows) {
      const size_t end = std::min(begin + kRows, positions);
      ESPALIER_ASSIGN(const std::span<const float> expected, reference.read(text.ids, begin, end));
      const Result<std::span<const float>> found = model.read(text.ids, begin, end);
      if (!found.ok()) {
        if (found.status().code() == Code::cancelled) return found.status();
        give_up(text, begin, found.status());
        break;
      }
      for (size_t p = begin; p < end; ++p) add(text, p, expected.subspan((p - begin) * vocabulary_, vocabulary_), found->subspan((p - begin) * vocabulary_, vocabulary_));
      ESPALIER_TRY(step(end));
    }
    before_ += static_cast<int64_t>(positions);
    return step(0);
  }

  const Fidelity& so_far() const { return out_; }
  Fidelity finish() {
    std::erase_if(out_.bands, [](const FidelityBand& b) { return b.all.positions == 0; });
    return std::move(out_);
  }

 private:
  Status step(size_t at) {
    if (progress_ && !progress_(before_ + static_cast<int64_t>(at), total_)) return {Code::cancelled, "the comparison was cancelled"};
    return {};
  }

  FidelityBand& band(int64_t position) {
    const size_t at = band_of(position);
    while (out_.bands.size() <= at) {
      const int64_t begin = out_.bands.empty() ? 0 : out_.bands.back().end;
      out_.bands.push_back({begin, begin == 0 ? kFirstBand : begin * 2, {}, {}});
    }
    return out_.bands[at];
  }

  template <typename Fn>
  void count(const FidelityText& text, size_t p, Fn fn) {
    FidelityBand& b = band(static_cast<int64_t>(p));
    fn(out_.all);
    fn(b.all);
    if (text.assistant[p] == 0) return;
    fn(out_.assistant);
    fn(b.assistant);
  }

  void give_up(const FidelityText& text, size_t from, const Status& why) {
    if (out_.unanswered_why.empty()) out_.unanswered_why = text.name + ": " + why.message();
    for (size_t p = from; p + 1 < text.ids.size(); ++p)
      count(text, p, [](FidelityCount& c) {
        ++c.positions;
        ++c.unanswered;
      });
  }

  void add(const FidelityText& text, size_t p, std::span<const float> expected, std::span<const float> found) {
    const Choice a = choose(expected), b = choose(found);
    const double d = divergence(expected, a.lse, found, b.lse);
    count(text, p, [&](FidelityCount& c) {
      ++c.positions;
      c.agree += a.best == b.best;
      c.divergence += d;
    });
    if (a.best == b.best) return;
    const auto gap = [&](std::span<const float> logits, int32_t high, int32_t low) { return static_cast<double>(logits[static_cast<size_t>(high)]) - static_cast<double>(logits[static_cast<size_t>(low)]); };
    out_.differences.push_back({text.name, static_cast<int64_t>(p), text.assistant[p] != 0, text.ids[p], a.best, b.best, gap(expected, a.best, b.best), gap(found, b.best, a.best)});
  }

  Engine::Impl& model_;
  Engine::Impl& reference_;
  const int64_t total_;
  const FidelityProgress& progress_;
  const size_t vocabulary_;
  int64_t before_ = 0;  // positions of the texts that are done
  Fidelity out_;
};

// The ids of the texts are the model's; the reference must mean the same by them.
Status check_same_tokens(const Engine::Impl& model, const Engine::Impl& reference, const FidelityTexts& texts) {
  if (model.info.vocabulary != reference.info.vocabulary)
    return invalid("the models have " + std::to_string(model.info.vocabulary) + " and " + std::to_string(reference.info.vocabulary) + " tokens: they cannot be compared token by token", "against");
  for (const FidelityText& text : texts.texts)
    for (const int32_t id : text.ids)
      if (model.tokenizer.token_bytes(id) != reference.tokenizer.token_bytes(id))
        return invalid("token " + std::to_string(id) + " is \"" + std::string(model.tokenizer.token_bytes(id)) + "\" for one model and \"" + std::string(reference.tokenizer.token_bytes(id)) + "\" for the other", "against");
  return {};
}

}  // namespace

Result<Fidelity> measure_fidelity(Engine::Impl& model, Engine::Impl& reference, const FidelityTexts& texts, int64_t most, const FidelityProgress& progress) {
  ESPALIER_TRY(check_same_tokens(model, reference, texts));
  int64_t total = 0;
  for (const FidelityText& text : texts.texts) total += static_cast<int64_t>(text.ids.size()) - 1;
  Comparison comparison(model, reference, total, progress);
  for (const FidelityText& text : texts.texts) {
    ESPALIER_TRY(comparison.compare(text));
    if (most > 0 && comparison.so_far().deciding().positions >= most) break;
  }
  return comparison.finish();
}

}  // namespace espalier
