#include "measure/draft_bench.h"

#include <algorithm>

#include "measure/bench_prompts.h"

namespace espalier {
namespace {

// A prompt whose states have read all but its last two tokens: those that are left make a call of a prompt, as they do alone.
struct Place {
  std::vector<PreparedRequest> requests;  // by temperature
  std::unique_ptr<State> state, drafter;
};

struct Run {
  Answer answer;
  SpeculationStats stats;
};

class Bench {
 public:
  Bench(Engine::Impl& engine, const DraftBenchOptions& options, const DraftProgress& progress) : engine_(engine), o_(options), progress_(progress) {}

  Result<DraftBench> run(const std::vector<ReadPrompt>& prompts) {
    out_.modes = {"off"};
    for (const std::string& m : o_.modes) {
      ESPALIER_ASSIGN(const SpeculationMode mode, parse_speculation_mode(m));
      if (std::find(out_.modes.begin(), out_.modes.end(), mode.text()) == out_.modes.end()) out_.modes.push_back(mode.text());
    }
    for (size_t i = 0; i < prompts.size(); ++i) ESPALIER_TRY(read(prompts[i], i));
    for (size_t t = 0; t < o_.temperatures.size(); ++t) ESPALIER_TRY(first_pass(t));
    for (int32_t round = 0; round < o_.rounds; ++round)
      for (size_t t = 0; t < o_.temperatures.size(); ++t) ESPALIER_TRY(timed_pass(t, round));
    const SharedDrafting::Learnt learnt = engine_.drafting->learnt();
    out_.ngram.assign(learnt.ngram.platts().begin(), learnt.ngram.platts().end());
    out_.greedy.assign(learnt.greedy.platts().begin(), learnt.greedy.platts().end());
    out_.sampled.assign(learnt.sampled.platts().begin(), learnt.sampled.platts().end());
    return std::move(out_);
  }

 private:
  Status tell(const std::string& what) const { return progress_ && !progress_(what) ? Status(Code::cancelled, "the bench was cancelled") : Status(); }
  bool drafts() const { return out_.modes.size() > 1; }

  Status read(const ReadPrompt& prompt, size_t index) {
    Place& place = places_.emplace_back();
    ESPALIER_TRY(tell("reading prompt " + std::to_string(index + 1)));
    for (const double t : o_.temperatures) {
      ESPALIER_ASSIGN(PreparedRequest request, bench_request(engine_, prompt, t, o_.max_tokens, index + 1));
      place.requests.push_back(std::move(request));
    }
    GenerationState held{nullptr};
    ESPALIER_ASSIGN(const std::unique_ptr<State> state, engine_.model->make_state());
    std::unique_ptr<State> drafter;
    if (drafts() && o_.sources != "ngram") {  // without its state the drafter takes no time
      ESPALIER_ASSIGN(drafter, make_drafter_state(engine_, SpeculationMode{}));
    }
    held.state = state.get();
    held.drafter = drafter.get();
    held.snapshot_at = std::max(static_cast<int32_t>(prompt.ids.size()) - 2, 0);
    PreparedRequest one = place.requests[0];
    one.answer.max_tokens = 1;
    ESPALIER_ASSIGN(const Run ran, decode(one, SpeculationMode{drafts() ? SpeculationMode::Kind::automatic : SpeculationMode::Kind::off, 0, {}}, held));
    static_cast<void>(ran);
    place.state = std::move(held.snapshot);
    place.drafter = std::move(held.drafter_snapshot);
    return {};
  }

  // As the engine's own loop, with the sources that were asked for.
  Result<Run> decode(const PreparedRequest& request, const SpeculationMode& mode, GenerationState& held, bool traces = false) {
    const bool drafts = mode.kind != SpeculationMode::Kind::off;
    const std::atomic<bool> cancelled{false};
    const Callbacks none;
    Speculation speculation(*engine_.drafting, mode);
    Decoder decoder(*engine_.model, &engine_.calls, drafts ? &speculation : nullptr);
    ESPALIER_ASSIGN(const std::unique_ptr<Generation> g, Generation::open(engine_, request, held, cancelled, none, decoder, drafts ? &speculation : nullptr));
    if (drafts && o_.sources != "all") {
      std::vector<DraftSource*> sources = speculation.sources(g->id());
      std::erase_if(sources, [&](const DraftSource* s) { return s->name() != o_.sources; });
      speculation.use_sources(g->id(), std::move(sources));
    }
    std::unique_ptr<TracingSource> tracing;
    if (drafts && traces) {
      std::vector<DraftSource*> sources = speculation.sources(g->id());
      for (DraftSource*& s : sources) {
        if (s->name() != "dspark") continue;
        tracing = std::make_unique<TracingSource>(*s, out_.trace);
        s = tracing.get();
      }
      speculation.use_sources(g->id(), std::move(sources));
    }
    while (g->before_step()) {
      ESPALIER_ASSIGN([[maybe_unused]] const StepReport report, decoder.step(engine_.pace.rows(), g->stop_at()));
      g->after_step();
    }
    Run run;
    if (drafts) run.stats = speculation.stats(g->id());
    run.answer = g->finish();
    return run;
  }

  Result<Run> answer(size_t prompt, size_t temperature, const std::string& mode_text, bool traces = false) {
    ESPALIER_ASSIGN(const SpeculationMode mode, parse_speculation_mode(mode_text));
    const Place& place = places_[prompt];
    std::unique_ptr<State> state, drafter;
    if (place.state != nullptr) {
      state = place.state->fork();
      if (place.drafter != nullptr && mode_text != "off") drafter = place.drafter->fork();
    } else {
      ESPALIER_ASSIGN(state, engine_.model->make_state());
      if (o_.sources != "ngram") {
        ESPALIER_ASSIGN(drafter, make_drafter_state(engine_, mode));
      }
    }
    GenerationState held{state.get(), drafter.get()};
    return decode(place.requests[temperature], mode, held, traces);
  }

  std::string kind_of(const Answer& answer) const {
    if (!answer.tool_calls.empty()) return "call";
    if (!engine_.chat || answer.token_ids.empty()) return "prose";
    const std::string start = engine_.chat->output(false).call_start;
    return !start.empty() && engine_.tokenizer.token_bytes(answer.token_ids[0]) == start ? "call" : "prose";
  }

  Status compare(size_t prompt, size_t temperature, const std::string& mode, const Answer& answer) const {
    const Answer& plain = plain_[temperature][prompt];
    if (answer.token_ids == plain.token_ids && answer.finish_reason == plain.finish_reason) return {};
    return {Code::internal, "prompt " + std::to_string(prompt + 1) + " with " + mode + ": the answer differs from plain decoding"};
  }

  Status first_pass(size_t t) {
    DraftTable& table = out_.tables.emplace_back();
    table.temperature = o_.temperatures[t];
    plain_.emplace_back();
    for (const std::string& mode : out_.modes) {
      ESPALIER_TRY(tell("comparing the texts of " + mode + " with plain decoding"));
      for (size_t p = 0; p < places_.size(); ++p) {
        ESPALIER_ASSIGN(Run run, answer(p, t, mode, t == 0 && mode == o_.traced));
        if (mode == "off") {
          table.kinds.push_back(kind_of(run.answer));
          table.answers.push_back(run.answer.token_ids);
          plain_[t].push_back(run.answer);
        }
        ESPALIER_TRY(compare(p, t, mode, run.answer));
        for (const std::string& kind : {table.kinds[p], std::string("all")}) {
          DraftCell& cell = table.cells[mode][kind];
          ++cell.answers;
          cell.tokens += run.answer.timings.decode_tokens;
          run.stats.ms = {};
          cell.stats.merge(run.stats);
          cell.cycles.push_back(run.stats.cycles);
        }
      }
    }
    return {};
  }

  Status timed_pass(size_t t, int32_t round) {
    DraftTable& table = out_.tables[t];
    ESPALIER_TRY(tell("temperature " + std::to_string(table.temperature).substr(0, 4) + ", round " + std::to_string(round + 1) + " of " + std::to_string(o_.rounds)));
    for (auto& [mode, kinds] : table.cells)
      for (auto& [kind, cell] : kinds) cell.round_ms.push_back(0);
    for (size_t p = 0; p < places_.size(); ++p)
      for (size_t i = 0; i < out_.modes.size(); ++i) {
        // Another mode comes first each time.
        const std::string& mode = out_.modes[(i + p + static_cast<size_t>(round)) % out_.modes.size()];
        ESPALIER_ASSIGN(const Run run, answer(p, t, mode));
        ESPALIER_TRY(compare(p, t, mode, run.answer));
        for (const std::string& kind : {table.kinds[p], std::string("all")}) {
          DraftCell& cell = table.cells[mode][kind];
          cell.round_ms.back() += run.answer.timings.decode_ms;
          cell.stats.ms.draft += run.stats.ms.draft;
          cell.stats.ms.verify += run.stats.ms.verify;
          cell.stats.ms.commit += run.stats.ms.commit;
          cell.stats.ms.host += run.stats.ms.host;
        }
      }
    return {};
  }

  Engine::Impl& engine_;
  const DraftBenchOptions& o_;
  const DraftProgress& progress_;
  DraftBench out_;
  std::vector<Place> places_;
  std::vector<std::vector<Answer>> plain_;  // by temperature
};

}  // namespace

Result<DraftBench> bench_drafts(Engine::Impl& engine, const std::vector<ReadPrompt>& prompts, const DraftBenchOptions& options, const DraftProgress& progress) {
  if (options.rounds < 0) return invalid("rounds: expected at least 0", "rounds");
  if (options.sources != "all" && options.sources != "ngram" && options.sources != "dspark")
    return invalid("sources: expected all, ngram or dspark, found \"" + options.sources + "\"", "sources");
  if (options.sources == "dspark" && engine.drafting->drafter() == nullptr) return invalid("sources: this model has no drafter", "sources");
  if (!options.calibrated) engine.drafting->leave_uncalibrated();
  return Bench(engine, options, progress).run(prompts);
}

Ratio ratio_of(const DraftCell& base, const DraftCell& mode) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(base.round_ms.size(), mode.round_ms.size()); ++i)
    if (mode.round_ms[i] > 0) ratios.push_back(base.round_ms[i] / mode.round_ms[i]);
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  const size_t half = ratios.size() / 2;
  return {ratios.size() % 2 == 1 ? ratios[half] : 0.5 * (ratios[half - 1] + ratios[half]), ratios.front(), ratios.back()};
}

}  // namespace espalier
