#include "measure/oracle_bench.h"

#include <algorithm>
#include <cstdio>

#include "engine/generation.h"
#include "measure/synthetic_state.h"

namespace espalier {
namespace {

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

constexpr int32_t kLead = 64;  // tokens that plain decoding is ahead: as deep as a trace may be

struct Sums {
  std::string mode;
  double ms = 0, promised = 0;
  int64_t tokens = 0;
  SpeculationStats stats;
};

// Adds up what the trees that are verified promise.
class Promises final : public Drafting {
 public:
  Promises(Speculation& inner, double& sum) : inner_(inner), sum_(sum) {}
  std::span<const std::string> taps() const override { return inner_.taps(); }
  bool follows(SequenceId id) const override { return inner_.follows(id); }
  bool reads_taps(SequenceId id) const override { return inner_.reads_taps(id); }
  void draft(std::span<const DraftAsk> asked, int32_t other_rows, std::span<DraftTree> trees) override { inner_.draft(asked, other_rows, trees); }
  void settle(SequenceId id, const DraftTree& tree, const Acceptance& kept) override {
    sum_ += 1;
    for (const DraftNode& n : tree.nodes) sum_ += static_cast<double>(n.reach);
    inner_.settle(id, tree, kept);
  }
  void keep(std::span<const KeptRows> rows) override { inner_.keep(rows); }
  void observe(const StepReport& report) override { inner_.observe(report); }
  void abandon() override { inner_.abandon(); }

 private:
  Speculation& inner_;
  double& sum_;
};

// One mode on its way through the text.
class Track {
 public:
  Track(Engine::Impl& engine, const SpeculationMode& mode, const State& state, const State* drafter, Sums& sums)
      : drafts_(mode.kind != SpeculationMode::Kind::off), state_(state.fork()), drafter_(drafts_ && drafter != nullptr ? drafter->fork() : nullptr),
        sums_(sums), speculation_(*engine.drafting, mode), promises_(speculation_, sums.promised), decoder_(*engine.model, &engine.calls, drafts_ ? &promises_ : nullptr) {}

  Status open(const std::vector<int32_t>& prompt, int32_t tokens, const OracleTrace& trace, const std::vector<int32_t>& truth, int32_t vocabulary) {
    Sampling greedy;
    greedy.temperature = 0;
    TextLimits limits;
    limits.tokens_max = tokens;
    ESPALIER_ASSIGN(id_, decoder_.open(state_.get(), prompt, static_cast<int32_t>(prompt.size()), greedy, -1, std::move(limits)));
    if (!drafts_) return {};
    speculation_.follow(id_, greedy, *state_, drafter_.get());
    DraftSource* beside = nullptr;
    for (DraftSource* s : speculation_.sources(id_)) beside = s->name() == "dspark" ? s : beside;
    oracle_ = std::make_unique<OracleSource>(trace, truth, vocabulary, beside);
    speculation_.use_sources(id_, {oracle_.get()});
    return {};
  }

  Status run_to(size_t length) {
    const size_t before = text().size();
    const int64_t t0 = now_ns();
    while (text().size() < length) {
      ESPALIER_ASSIGN([[maybe_unused]] const StepReport report, decoder_.step(1));
    }
    sums_.ms += ms_between(t0, now_ns());
    sums_.tokens += static_cast<int64_t>(text().size() - before);
    return {};
  }
  std::span<const int32_t> text() const { return decoder_.text(id_); }

  void close() {
    if (drafts_) {
      sums_.stats.merge(speculation_.stats(id_));
      speculation_.close(id_);
    }
    decoder_.close(id_);
  }

 private:
  bool drafts_;
  std::unique_ptr<State> state_, drafter_;
  Sums& sums_;
  Speculation speculation_;
  Promises promises_;
  Decoder decoder_;
  std::unique_ptr<OracleSource> oracle_;
  SequenceId id_ = -1;
};

class Bench {
 public:
  Bench(Engine::Impl& engine, const OracleTrace& trace, const OracleBenchOptions& options, const OracleProgress& progress)
      : engine_(engine), trace_(trace), o_(options), progress_(progress) {}

  Result<Value> run() {
    sums_.push_back({"off", 0, 0, 0, {}});
    for (const std::string& m : o_.modes) {
      ESPALIER_ASSIGN(const SpeculationMode mode, parse_speculation_mode(m));
      if (mode.kind != SpeculationMode::Kind::off) sums_.push_back({mode.text(), 0, 0, 0, {}});
    }
    ESPALIER_TRY(prepare());
    for (int32_t round = 0; round < o_.rounds; ++round) ESPALIER_TRY(run_round(round));
    return report();
  }

 private:
  Status tell(const std::string& what) const { return progress_ && !progress_(what) ? Status(Code::cancelled, "the bench was cancelled") : Status(); }

  Status prepare() {
    const int32_t vocabulary = engine_.plan.program.vocabulary;
    if (int64_t{o_.depth} + o_.tokens + 1 > engine_.context())
      return invalid("depth: " + std::to_string(o_.depth) + " held rows and " + std::to_string(o_.tokens) + " tokens are more than the context holds", "depth");
    ESPALIER_TRY(tell("making up " + std::to_string(o_.depth) + " held rows"));
    ESPALIER_ASSIGN(state_, engine_.model->make_state());
    ESPALIER_TRY(hold_synthetic(engine_.plan.program, *state_, o_.depth, vocabulary));
    if (Drafter* drafter = engine_.drafting->drafter(); drafter != nullptr) {
      ESPALIER_ASSIGN(drafter_, drafter->model->make_state());
      ESPALIER_TRY(hold_synthetic(drafter->plan.model.program, *drafter_, o_.depth, vocabulary));
    }
    for (int32_t i = 0; i <= o_.depth; ++i) prompt_.push_back(synthetic_token(i, vocabulary));
    return {};
  }

  // Plain decoding leads, the others follow through what it has said.
  Status run_round(int32_t round) {
    std::vector<int32_t> truth = prompt_;
    std::vector<std::unique_ptr<Track>> tracks;
    for (Sums& s : sums_) {
      ESPALIER_ASSIGN(const SpeculationMode mode, parse_speculation_mode(s.mode));
      tracks.push_back(std::make_unique<Track>(engine_, mode, *state_, drafter_.get(), s));
      ESPALIER_TRY(tracks.back()->open(prompt_, o_.tokens, trace_, truth, engine_.plan.program.vocabulary));
    }
    for (int32_t done = 0; done < o_.tokens;) {
      done = std::min(done + o_.turn, o_.tokens);
      ESPALIER_TRY(tell("round " + std::to_string(round + 1) + ": " + std::to_string(done) + " of " + std::to_string(o_.tokens) + " tokens"));
      for (size_t i = 0; i < tracks.size(); ++i) {
        ESPALIER_TRY(tracks[i]->run_to(prompt_.size() + static_cast<size_t>(i == 0 ? std::min(done + kLead, o_.tokens) : done)));
        const std::span<const int32_t> text = tracks[i]->text();
        if (i == 0) truth.assign(text.begin(), text.end());
        if (!std::equal(text.begin(), text.end(), truth.begin(), truth.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), truth.size()))))
          return {Code::internal, sums_[i].mode + ": the text differs from plain decoding"};
      }
    }
    for (const std::unique_ptr<Track>& t : tracks) t->close();
    return {};
  }

  static double per_second(const Sums& s) { return 1000 * static_cast<double>(s.tokens) / std::max(s.ms, 1e-9); }
  static double promised_per_second(const Sums& s) { return 1000 * (s.mode == "off" ? static_cast<double>(s.tokens) : s.promised) / std::max(s.ms, 1e-9); }

  Value row_of(const Sums& s) const {
    Value row = Value::object(), ms = Value::object();
    row.set("mode", s.mode);
    row.set("tokens_per_second", per_second(s));
    row.set("ratio_to_off", per_second(s) / per_second(sums_[0]));
    row.set("promised_per_second", promised_per_second(s));
    row.set("promised_ratio", promised_per_second(s) / promised_per_second(sums_[0]));
    if (&s == &sums_[0]) return row;
    const double cycles = static_cast<double>(std::max<int64_t>(s.stats.cycles, 1));
    row.set("tokens_per_cycle", s.stats.tokens_per_cycle());
    row.set("promised_per_cycle", s.promised / cycles);
    row.set("rows_per_cycle", s.stats.rows_per_cycle());
    ms.set("draft", s.stats.ms.draft / cycles);
    ms.set("verify", s.stats.ms.verify / cycles);
    ms.set("commit", s.stats.ms.commit / cycles);
    ms.set("host", s.stats.ms.host / cycles);
    row.set("ms_per_cycle", std::move(ms));
    return row;
  }

  Value report() const {
    Value v = Value::object(), list = Value::array();
    v.set("trace", trace_.from);
    v.set("depth", int64_t{o_.depth});
    v.set("tokens", int64_t{o_.tokens});
    v.set("rounds", int64_t{o_.rounds});
    const Sums *best = nullptr, *rule = nullptr;
    for (const Sums& s : sums_) {
      list.push(row_of(s));
      if (s.mode == "auto") rule = &s;
      if (s.mode.starts_with("tree:") && (best == nullptr || promised_per_second(s) > promised_per_second(*best))) best = &s;
    }
    v.set("rows", std::move(list));
    if (best != nullptr && rule != nullptr) {
      Value against = Value::object();
      against.set("best", best->mode);
      against.set("ratio", promised_per_second(*rule) / promised_per_second(*best));
      v.set("auto_to_best_fixed", std::move(against));
    }
    return v;
  }

  Engine::Impl& engine_;
  const OracleTrace& trace_;
  const OracleBenchOptions& o_;
  const OracleProgress& progress_;
  std::unique_ptr<State> state_, drafter_;
  std::vector<int32_t> prompt_;
  std::vector<Sums> sums_;
};

}  // namespace

Result<Value> bench_oracle(Engine::Impl& engine, const OracleTrace& trace, const OracleBenchOptions& options, const OracleProgress& progress) {
  if (options.rounds < 1) return invalid("rounds: expected at least 1", "rounds");
  if (options.tokens < 1 || options.turn < 1) return invalid("decode: expected at least 1 token", "decode");
  return Bench(engine, trace, options, progress).run();
}

std::string oracle_text(const Value& r) {
  std::string out = line("oracle: %s\n%lld rows held, %lld tokens, %lld rounds; promised: without the luck of the dice\n\n", r.find("trace")->as_string().substr(0, 120).c_str(),
                         static_cast<long long>(r.find("depth")->as_int()), static_cast<long long>(r.find("tokens")->as_int()),
                         static_cast<long long>(r.find("rounds")->as_int()));
  out += "  mode       promised/s   x off   tokens/s   x off   tokens/cycle: promised, came   rows/cycle   ms a cycle: draft   verify   commit     host\n";
  for (const Value& row : r.find("rows")->as_array()) {
    const auto number = [&](const char* path) { return row.find_path(path)->as_double(); };
    out += line("  %-9s %11.2f  %6.2f  %9.2f  %6.2f", row.find("mode")->as_string().c_str(), number("promised_per_second"), number("promised_ratio"),
                number("tokens_per_second"), number("ratio_to_off"));
    if (row.find("ms_per_cycle") != nullptr)
      out += line("   %21.2f %6.2f   %10.2f   %17.2f%9.2f%9.2f%9.2f", number("promised_per_cycle"), number("tokens_per_cycle"), number("rows_per_cycle"),
                  number("ms_per_cycle.draft"), number("ms_per_cycle.verify"), number("ms_per_cycle.commit"), number("ms_per_cycle.host"));
    out += "\n";
  }
  if (const Value* a = r.find("auto_to_best_fixed"); a != nullptr)
    out += line("\nauto reaches %.1f %% of the best fixed width, %s\n", 100 * a->find("ratio")->as_double(), a->find("best")->as_string().c_str());
  return out;
}

}  // namespace espalier
