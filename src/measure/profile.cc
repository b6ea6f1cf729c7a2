#include "measure/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

#include "measure/synthetic_state.h"

namespace espalier {
namespace {

constexpr int32_t kStepWidths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 28, 31, 32, 33, 40, 47, 48, 49, 56, 63, 64};
constexpr int32_t kReadWidths[] = {1, 2, 4, 8, 16, 32, 64};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t half = v.size() / 2;
  return v.size() % 2 == 1 ? v[half] : 0.5 * (v[half - 1] + v[half]);
}
double ms_of(const CallStats& s) { return std::max(static_cast<double>(s.t1_ns - s.t0_ns) * 1e-6, 1e-6); }

class Profiler {
 public:
  Profiler(Engine::Impl& engine, const ProfileOptions& options, const ProfileProgress& progress) : engine_(engine), o_(options), progress_(progress) {}

  Result<MachineProfile> run() {
    MachineProfile out{profile_key(engine_), {}, {}};
    Drafter* drafter = engine_.drafting->drafter();
    if (drafter != nullptr)
      for (const std::string& tap : drafter->taps) out_.taps.push_back({tap, {}});
    for (const double context : o_.contexts) {
      if (context + kDraftRowsMax > static_cast<double>(engine_.context())) continue;
      ESPALIER_TRY(time_target(context, out));
      if (drafter != nullptr) ESPALIER_TRY(time_drafter(*drafter, context, out));
    }
    if (out.samples.empty()) return invalid("the engine's context holds none of the contexts that are profiled", "context");
    return out;
  }

 private:
  Status tell(double context, const std::string& what) const {
    const std::string text = "context " + std::to_string(static_cast<int64_t>(context)) + ": " + what;
    return progress_ && !progress_(text) ? Status(Code::cancelled, "profiling was cancelled") : Status();
  }
  int32_t vocabulary() const { return engine_.plan.program.vocabulary; }

  Result<double> time_call(State& state, int32_t rows) {
    std::vector<Row> list;
    const int32_t held = state.length();
    const uint32_t wants = kWantArgmax | (out_.taps.empty() ? 0u : uint32_t{kWantTaps});
    for (int32_t i = 0; i < rows; ++i)
      list.push_back({synthetic_token(held + i, vocabulary()), 0, held + i, i == 0 ? kState : i - 1, wants});
    State* const states[] = {&state};
    ESPALIER_ASSIGN(const CallStats stats, engine_.model->run({{Role::step, kNone}, list, states, {}, 0, &out_}));
    return ms_of(stats);
  }

  Status time_target(double context, MachineProfile& out) {
    ESPALIER_TRY(tell(context, "making it up"));
    ESPALIER_ASSIGN(const std::unique_ptr<State> state, engine_.model->make_state());
    ESPALIER_TRY(hold_synthetic(engine_.plan.program, *state, static_cast<int32_t>(context), vocabulary()));
    // The first calls grow scratch, and tell what all of them will take.
    std::map<int32_t, double> first;
    for (const int32_t rows : {kDraftRowsMax, 1, kDraftRowsMax / 2, kDraftRowsMax}) {
      ESPALIER_ASSIGN(first[rows], time_call(*state, rows));
    }
    const double mean = (first[1] + first[kDraftRowsMax / 2] + first[kDraftRowsMax]) / 3;
    std::vector<int32_t> widths(kDraftRowsMax);
    std::iota(widths.begin(), widths.end(), 1);
    const double limit = 1000 * o_.seconds;
    if (mean * static_cast<double>(widths.size()) * o_.rounds > limit) widths.assign(std::begin(kStepWidths), std::end(kStepWidths));
    const int32_t fit = static_cast<int32_t>(limit / (mean * static_cast<double>(widths.size())));
    const int32_t rounds = std::clamp(fit, std::min(3, o_.rounds), o_.rounds);
    std::map<int32_t, std::vector<double>> times;
    for (int32_t round = 0; round < rounds; ++round) {
      ESPALIER_TRY(tell(context, std::to_string(widths.size()) + " widths, round " + std::to_string(round + 1) + " of " + std::to_string(rounds)));
      for (size_t i = 0; i < widths.size(); ++i) {
        // 29 is prime to both numbers of widths: neighbours are not timed next to each other.
        const int32_t rows = widths[(i * 29 + static_cast<size_t>(round) * 7) % widths.size()];
        ESPALIER_ASSIGN(const double ms, time_call(*state, rows));
        times[rows].push_back(ms);
      }
    }
    for (const auto& [rows, list] : times) out.samples.push_back({rows, context, median(list)});
    return {};
  }

  Status time_drafter(Drafter& drafter, double context, MachineProfile& out) {
    ESPALIER_TRY(tell(context, "the drafter"));
    ESPALIER_ASSIGN(const std::unique_ptr<State> state, drafter.model->make_state());
    ESPALIER_TRY(hold_synthetic(drafter.plan.model.program, *state, static_cast<int32_t>(context), vocabulary()));
    const auto timed = [&](const std::function<Status()>& call) -> Result<double> {
      std::vector<double> times;
      for (int32_t i = 0; i <= std::min(o_.rounds, 5); ++i) {
        const int64_t t0 = now_ns();
        ESPALIER_TRY(call());
        if (i > 0) times.push_back(std::max(ms_between(t0, now_ns()), 1e-6));
      }
      return median(times);
    };
    DrafterTimes t;
    t.context = context;
    Outputs block;
    block.taps = {{"hidden", {}}};
    const int32_t root[] = {synthetic_token(state->length(), vocabulary())};
    ESPALIER_ASSIGN(t.block_ms, timed([&]() -> Status {
      const DrafterRows rows[] = {{state.get(), root}};
      return run_block(drafter, rows, block);
    }));
    const size_t width = drafter.taps.size() * static_cast<size_t>(drafter.plan.model.program.hidden);
    const std::vector<float> features(width * kDraftRowsMax, 0.5f);
    for (const int32_t n : kReadWidths) {
      std::vector<int32_t> tokens;
      for (int32_t i = 0; i < n; ++i) tokens.push_back(synthetic_token(state->length() + i, vocabulary()));
      ESPALIER_ASSIGN(const double ms, timed([&]() -> Status {
        const std::unique_ptr<State> fork = state->fork();
        const DrafterRows rows[] = {{fork.get(), tokens, features.data()}};
        return run_context(drafter, rows);
      }));
      t.context_ms.push_back({n, context, ms});
    }
    out.drafter.push_back(std::move(t));
    return {};
  }

  Engine::Impl& engine_;
  const ProfileOptions& o_;
  const ProfileProgress& progress_;
  Outputs out_;
};

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

Result<MachineProfile> measure_profile(Engine::Impl& engine, const ProfileOptions& options, const ProfileProgress& progress) {
  if (options.rounds < 1) return invalid("rounds: expected at least 1", "rounds");
  return Profiler(engine, options, progress).run();
}

Value profile_json(const MachineProfile& profile, const std::string& path) {
  Value v = Value::object();
  v.set("path", path);
  Value machine = Value::object();
  machine.set("cpu", profile.key.cpu);
  machine.set("cores", int64_t{profile.key.cores});
  machine.set("kernels", profile.key.kernels);
  machine.set("threads", int64_t{profile.key.threads});
  v.set("machine", std::move(machine));
  Value contexts = Value::array();
  for (const CostCurve::Band& band : fit_curve(profile.samples).bands) {
    Value b = Value::object(), ms = Value::array(), measured = Value::array();
    b.set("context", band.context);
    for (const double m : band.ms) ms.push(m);
    for (const CostSample& s : profile.samples)
      if (s.context == band.context) measured.push(int64_t{s.rows});
    b.set("ms", std::move(ms));
    b.set("measured", std::move(measured));
    for (const DrafterTimes& t : profile.drafter) {
      if (t.context != band.context) continue;
      Value reads = Value::array();
      for (const CostSample& s : t.context_ms) {
        Value r = Value::object();
        r.set("rows", int64_t{s.rows});
        r.set("ms", s.ms);
        reads.push(std::move(r));
      }
      b.set("block_ms", t.block_ms);
      b.set("reads", std::move(reads));
    }
    contexts.push(std::move(b));
  }
  v.set("contexts", std::move(contexts));
  return v;
}

std::string profile_text(const MachineProfile& profile, const std::string& path) {
  const CostCurve curve = fit_curve(profile.samples);
  std::string out = profile.key.cpu + ", " + std::to_string(profile.key.threads) + " threads, " + profile.key.kernels + "; ms of a call\n\n  context";
  constexpr int32_t kShown[] = {1, 2, 4, 8, 16, 17, 24, 32, 48, 64};
  for (const int32_t rows : kShown) out += line(" %4d rows", rows);
  out += profile.drafter.empty() ? "\n" : "     block\n";
  for (const CostCurve::Band& band : curve.bands) {
    out += line("  %7.0f", band.context);
    for (const int32_t rows : kShown) out += line(" %9.2f", band.ms[static_cast<size_t>(rows - 1)]);
    for (const DrafterTimes& t : profile.drafter)
      if (t.context == band.context) out += line(" %9.2f", t.block_ms);
    out += "\n";
  }
  return out + "\nkept as " + path + "\n";
}

}  // namespace espalier
