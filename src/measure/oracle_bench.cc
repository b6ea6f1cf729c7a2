#include "measure/oracle_bench.h"

#include <algorithm>
#include <cstdio>

#include "engine/generation.h"
#include "measure/synthetic_state.h"

namespace espalier {
namespace {

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const size_t half = v.size() / 2;
  return v.size() % 2 == 1 ? v[half] : 0.5 * (v[half - 1] + v[half]);
}

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

struct Row {
  std::string mode;
  std::vector<double> ms;  // of each counted round
  SpeculationStats stats;  // of the counted rounds
};

class Bench {
 public:
  Bench(Engine::Impl& engine, const OracleTrace& trace, const OracleBenchOptions& options, const OracleProgress& progress)
      : engine_(engine), trace_(trace), o_(options), progress_(progress) {}

  Result<Value> run() {
    ESPALIER_TRY(prepare());
    rows_.push_back({"off", {}, {}});
    for (const std::string& m : o_.modes) {
      ESPALIER_ASSIGN(const SpeculationMode mode, parse_speculation_mode(m));
      if (mode.kind != SpeculationMode::Kind::off) rows_.push_back({mode.text(), {}, {}});
    }
    const int32_t first = o_.rounds > 1 ? 1 : 0;
    for (int32_t round = 0; round < o_.rounds; ++round)
      for (size_t i = 0; i < rows_.size(); ++i) {
        Row& row = rows_[(i + static_cast<size_t>(round)) % rows_.size()];
        ESPALIER_TRY(tell(row.mode + ", round " + std::to_string(round + 1) + " of " + std::to_string(o_.rounds)));
        SpeculationStats stats;
        std::vector<int32_t> text = truth_;
        double ms = plain_ms_;  // what made the truth is plain decoding's first round
        if (row.mode != "off" || round > 0) {
          ESPALIER_ASSIGN(ms, decode(row.mode, text, stats));
        }
        if (text != truth_) return Status(Code::internal, row.mode + ": the text differs from plain decoding");
        if (round < first) continue;
        row.ms.push_back(ms);
        row.stats.merge(stats);
      }
    return report();
  }

 private:
  Status tell(const std::string& what) const { return progress_ && !progress_(what) ? Status(Code::cancelled, "the bench was cancelled") : Status(); }

  Status prepare() {
    const int32_t vocabulary = engine_.plan.program.vocabulary;
    if (o_.depth + o_.tokens + 1 > engine_.context())
      return invalid("depth: " + std::to_string(o_.depth) + " held rows and " + std::to_string(o_.tokens) + " tokens are more than the context holds", "depth");
    ESPALIER_TRY(tell("making up " + std::to_string(o_.depth) + " held rows"));
    ESPALIER_ASSIGN(state_, engine_.model->make_state());
    ESPALIER_TRY(hold_synthetic(engine_.plan.program, *state_, o_.depth, vocabulary));
    if (Drafter* drafter = engine_.drafting->drafter(); drafter != nullptr) {
      ESPALIER_ASSIGN(drafter_, drafter->model->make_state());
      ESPALIER_TRY(hold_synthetic(drafter->plan.model.program, *drafter_, o_.depth, vocabulary));
    }
    for (int32_t i = 0; i <= o_.depth; ++i) prompt_.push_back(synthetic_token(i, vocabulary));
    ESPALIER_TRY(tell("decoding plainly"));
    SpeculationStats none;
    ESPALIER_ASSIGN(plain_ms_, decode("off", truth_, none));
    return {};
  }

  // Milliseconds of all steps.
  Result<double> decode(const std::string& mode_text, std::vector<int32_t>& text, SpeculationStats& stats) {
    ESPALIER_ASSIGN(const SpeculationMode mode, parse_speculation_mode(mode_text));
    const bool drafts = mode.kind != SpeculationMode::Kind::off;
    const std::unique_ptr<State> state = state_->fork(), drafter = drafts && drafter_ ? drafter_->fork() : nullptr;
    Speculation speculation(*engine_.drafting, mode);
    Decoder decoder(*engine_.model, &engine_.calls, drafts ? &speculation : nullptr);
    Sampling greedy;
    greedy.temperature = 0;
    TextLimits limits;
    limits.tokens_max = o_.tokens;
    ESPALIER_ASSIGN(const SequenceId id, decoder.open(state.get(), prompt_, static_cast<int32_t>(prompt_.size()), greedy, -1, std::move(limits)));
    std::unique_ptr<OracleSource> oracle;
    if (drafts) {
      speculation.follow(id, greedy, *state, drafter.get());
      DraftSource* beside = nullptr;
      for (DraftSource* s : speculation.sources(id)) beside = s->name() == "dspark" ? s : beside;
      oracle = std::make_unique<OracleSource>(trace_, truth_, engine_.plan.program.vocabulary, beside);
      speculation.use_sources(id, {oracle.get()});
    }
    const size_t end = prompt_.size() + static_cast<size_t>(o_.tokens);
    const int64_t t0 = monotonic_ns();
    while (decoder.text(id).size() < end) {
      ESPALIER_ASSIGN([[maybe_unused]] const StepReport report, decoder.step(1));
    }
    const double ms = ms_between(t0, monotonic_ns());
    text.assign(decoder.text(id).begin(), decoder.text(id).end());
    if (drafts) {
      stats = speculation.stats(id);
      speculation.close(id);
    }
    decoder.close(id);
    return ms;
  }

  double ratio(const Row& of, const Row& to) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < of.ms.size(); ++i) ratios.push_back(to.ms[i] / of.ms[i]);
    return median(ratios);
  }

  Value report() const {
    Value v = Value::object(), list = Value::array();
    v.set("trace", trace_.from);
    v.set("depth", int64_t{o_.depth});
    v.set("tokens", int64_t{o_.tokens});
    v.set("rounds", static_cast<int64_t>(rows_[0].ms.size()));
    const Row *best = nullptr, *rule = nullptr;
    for (const Row& r : rows_) {
      Value row = Value::object(), ms = Value::object();
      row.set("mode", r.mode);
      row.set("tokens_per_second", 1000.0 * o_.tokens / median(r.ms));
      row.set("ratio_to_off", ratio(r, rows_[0]));
      if (&r != &rows_[0]) {
        row.set("tokens_per_cycle", r.stats.tokens_per_cycle());
        row.set("rows_per_cycle", r.stats.rows_per_cycle());
        ms.set("draft", r.stats.ms.draft);
        ms.set("verify", r.stats.ms.verify);
        ms.set("commit", r.stats.ms.commit);
        ms.set("host", r.stats.ms.host);
        row.set("ms", std::move(ms));
      }
      list.push(std::move(row));
      if (r.mode == "auto") rule = &r;
      if (r.mode.starts_with("tree:") && (best == nullptr || median(r.ms) < median(best->ms))) best = &r;
    }
    v.set("rows", std::move(list));
    if (best != nullptr && rule != nullptr) {
      Value against = Value::object();
      against.set("best", best->mode);
      against.set("ratio", ratio(*rule, *best));
      v.set("auto_to_best_fixed", std::move(against));
    }
    return v;
  }

  Engine::Impl& engine_;
  const OracleTrace& trace_;
  const OracleBenchOptions& o_;
  const OracleProgress& progress_;
  std::unique_ptr<State> state_, drafter_;
  std::vector<int32_t> prompt_, truth_;
  double plain_ms_ = 0;
  std::vector<Row> rows_;
};

}  // namespace

Result<Value> bench_oracle(Engine::Impl& engine, const OracleTrace& trace, const OracleBenchOptions& options, const OracleProgress& progress) {
  if (options.rounds < 1) return invalid("rounds: expected at least 1", "rounds");
  if (options.tokens < 1) return invalid("decode: expected at least 1 token", "decode");
  return Bench(engine, trace, options, progress).run();
}

std::string oracle_text(const Value& r) {
  std::string out = line("oracle: %s\n%lld rows held, %lld tokens, medians of %lld rounds\n\n", r.find("trace")->as_string().substr(0, 150).c_str(),
                         static_cast<long long>(r.find("depth")->as_int()), static_cast<long long>(r.find("tokens")->as_int()),
                         static_cast<long long>(r.find("rounds")->as_int()));
  out += "  mode       tokens/s    x off  tokens/cycle  rows/cycle   ms a cycle: draft   verify   commit     host\n";
  const double rounds = static_cast<double>(r.find("rounds")->as_int()), tokens = static_cast<double>(r.find("tokens")->as_int());
  for (const Value& row : r.find("rows")->as_array()) {
    out += line("  %-9s %9.2f  %6.2f", row.find("mode")->as_string().c_str(), row.find("tokens_per_second")->as_double(), row.find("ratio_to_off")->as_double());
    if (const Value* ms = row.find("ms"); ms != nullptr) {
      const double each = row.find("tokens_per_cycle")->as_double(), cycles = each > 0 ? rounds * tokens / each : 1;
      out += line("  %12.2f  %10.2f            %9.2f%9.2f%9.2f%9.2f", each, row.find("rows_per_cycle")->as_double(), ms->find("draft")->as_double() / cycles,
                  ms->find("verify")->as_double() / cycles, ms->find("commit")->as_double() / cycles, ms->find("host")->as_double() / cycles);
    }
    out += "\n";
  }
  if (const Value* a = r.find("auto_to_best_fixed"); a != nullptr)
    out += line("\nauto reaches %.1f %% of the best fixed width, %s\n", 100 * a->find("ratio")->as_double(), a->find("best")->as_string().c_str());
  return out;
}

}  // namespace espalier
