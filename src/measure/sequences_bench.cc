#include "measure/sequences_bench.h"

#include <algorithm>
#include <cstdio>
#include <list>

#include "engine/generation.h"
#include "measure/bench_prompts.h"
#include "measure/synthetic_state.h"

namespace espalier {
namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

struct Times {
  double ms = 0, decode_ms = 0;
  int64_t tokens = 0, decode_tokens = 0;
};

class Bench {
 public:
  Bench(Engine::Impl& engine, const SequencesBenchOptions& options, const SequencesProgress& progress) : engine_(engine), o_(options), progress_(progress) {}

  Result<Value> run(const std::vector<ReadPrompt>& prompts) {
    ESPALIER_ASSIGN(mode_, parse_speculation_mode(o_.mode));
    ESPALIER_TRY(ask_alone(prompts));
    std::vector<std::vector<double>> all(o_.sequences.size()), decode(o_.sequences.size());
    std::vector<Times> last(o_.sequences.size());
    for (int32_t round = 0; round < o_.rounds; ++round)
      for (size_t i = 0; i < o_.sequences.size(); ++i) {
        ESPALIER_TRY(tell(std::to_string(o_.sequences[i]) + " sequences, round " + std::to_string(round + 1)));
        ESPALIER_ASSIGN(last[i], together(static_cast<size_t>(o_.sequences[i])));
        all[i].push_back(static_cast<double>(last[i].tokens) * 1000 / std::max(last[i].ms, 1e-6));
        decode[i].push_back(static_cast<double>(last[i].decode_tokens) * 1000 / std::max(last[i].decode_ms, 1e-6));
      }
    Value v = Value::object(), rows = Value::array();
    v.set("mode", mode_.text());
    for (size_t i = 0; i < o_.sequences.size(); ++i) {
      Value row = Value::object();
      row.set("sequences", int64_t{o_.sequences[i]});
      row.set("tokens", last[i].tokens);
      row.set("ms", static_cast<double>(last[i].tokens) * 1000 / median(all[i]));
      row.set("tokens_per_second", median(all[i]));
      row.set("decode_tokens_per_second", median(decode[i]));
      row.set("ratio_to_first", median(decode[i]) / std::max(median(decode[0]), 1e-9));
      rows.push(std::move(row));
    }
    v.set("rows", std::move(rows));
    return v;
  }

 private:
  Status tell(const std::string& what) const { return progress_ && !progress_(what) ? Status(Code::cancelled, "the bench was cancelled") : Status(); }

  Status ask_alone(const std::vector<ReadPrompt>& prompts) {
    const size_t most = static_cast<size_t>(*std::max_element(o_.sequences.begin(), o_.sequences.end()));
    for (size_t i = 0; i < most; ++i) {
      ReadPrompt made;
      for (int32_t t = 0; t < o_.prompt; ++t) made.ids.push_back(synthetic_token(t + static_cast<int32_t>(i) * 1009, engine_.info.vocabulary));
      const ReadPrompt& prompt = prompts.empty() ? made : prompts[i % prompts.size()];
      ESPALIER_TRY(tell("answering " + std::to_string(i + 1) + " of " + std::to_string(most) + " alone"));
      ESPALIER_ASSIGN(PreparedRequest request, bench_request(engine_, prompt, 0, o_.tokens, i + 1, !prompts.empty()));
      request.speculate = mode_;
      ESPALIER_ASSIGN(const std::unique_ptr<State> state, engine_.model->make_state());
      ESPALIER_ASSIGN(const std::unique_ptr<State> drafter, make_drafter_state(engine_, mode_));
      GenerationState held{state.get(), drafter.get()};
      const std::atomic<bool> cancelled{false};
      ESPALIER_ASSIGN(Answer answer, generate(engine_, request, held, cancelled, {}));
      requests_.push_back(std::move(request));
      alone_.push_back(std::move(answer.token_ids));
    }
    return {};
  }

  struct Job {
    size_t key = 0;
    std::unique_ptr<State> state, drafter;
    GenerationState held{nullptr};
    std::unique_ptr<Generation> generation;
  };

  // As the engine's batch, with a look at each step.
  Result<Times> together(size_t count) {
    const bool drafts = mode_.kind != SpeculationMode::Kind::off;
    const std::atomic<bool> cancelled{false};
    const Callbacks none;
    Speculation speculation(*engine_.drafting, mode_);
    Decoder decoder(*engine_.model, &engine_.calls, drafts ? &speculation : nullptr);
    std::list<Job> jobs;
    Times times;
    const int64_t t0 = now_ns();
    for (size_t i = 0; i < count; ++i) {
      Job& job = jobs.emplace_back();
      job.key = i;
      ESPALIER_ASSIGN(job.state, engine_.model->make_state());
      ESPALIER_ASSIGN(job.drafter, make_drafter_state(engine_, mode_));
      job.held.state = job.state.get();
      job.held.drafter = job.drafter.get();
      ESPALIER_ASSIGN(job.generation, Generation::open(engine_, requests_[i], job.held, cancelled, none, decoder, drafts ? &speculation : nullptr));
    }
    while (true) {
      for (auto job = jobs.begin(); job != jobs.end();) {
        if (job->generation->before_step()) {
          ++job;
          continue;
        }
        if (job->generation->finish().token_ids != alone_[job->key])
          return Status(Code::internal, "sequence " + std::to_string(job->key + 1) + " of " + std::to_string(count) + ": its text differs from that alone");
        job = jobs.erase(job);
      }
      if (jobs.empty()) break;
      const int64_t begin = now_ns();
      ESPALIER_ASSIGN(const StepReport report, decoder.step(engine_.pace.rows()));
      for (Job& job : jobs) job.generation->after_step();
      times.tokens += static_cast<int64_t>(report.drawn.size());
      if (report.prompt_rows > 0) continue;
      times.decode_ms += ms_between(begin, now_ns());
      times.decode_tokens += static_cast<int64_t>(report.drawn.size());
    }
    times.ms = ms_between(t0, now_ns());
    return times;
  }

  Engine::Impl& engine_;
  const SequencesBenchOptions& o_;
  const SequencesProgress& progress_;
  SpeculationMode mode_;
  std::vector<PreparedRequest> requests_;
  std::vector<std::vector<int32_t>> alone_;
};

}  // namespace

Result<Value> bench_sequences(Engine::Impl& engine, const std::vector<ReadPrompt>& prompts, const SequencesBenchOptions& options, const SequencesProgress& progress) {
  if (options.sequences.empty()) return invalid("sequences: expected at least one number", "sequences");
  if (options.rounds < 1) return invalid("rounds: expected at least 1", "rounds");
  return Bench(engine, options, progress).run(prompts);
}

std::string sequences_text(const Value& r) {
  std::string out = "drafting: " + r.find("mode")->as_string() + "; texts equal those alone\n\n  sequences   tokens        ms   tokens/s   decoding tokens/s   x the first row\n";
  for (const Value& row : r.find("rows")->as_array())
    out += line("  %9lld %8lld %9.1f %10.1f %19.1f %17.2f\n", static_cast<long long>(row.find("sequences")->as_int()), static_cast<long long>(row.find("tokens")->as_int()),
                row.find("ms")->as_double(), row.find("tokens_per_second")->as_double(), row.find("decode_tokens_per_second")->as_double(), row.find("ratio_to_first")->as_double());
  return out;
}

}  // namespace espalier
