#include "measure/bench.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

#include "measure/machine.h"
#include "units/cpu/cpu_model.h"

namespace espalier {
namespace {

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// What one row multiplies with, and what a call reads at least: every matrix that a linear or the head uses, once.
struct Work {
  double macs = 0, bytes = 0;
};

Work work_of(const Model& model) {
  const auto* cpu = dynamic_cast<const cpu::CpuModel*>(&model);
  Work w;
  std::set<WeightId> seen;
  for (const Op& op : model.program().find(Role::step)->ops) {
    if (op.kind() != OpKind::linear && op.kind() != OpKind::head) continue;
    const WeightId id = op.weights[0];
    const WeightDecl& d = model.program().weights[static_cast<size_t>(id)];
    const double size = static_cast<double>(d.rows) * static_cast<double>(d.cols);
    w.macs += size;
    if (!seen.insert(id).second) continue;
    w.bytes += cpu != nullptr ? static_cast<double>(packed_bytes(cpu->weights().entries[static_cast<size_t>(id)].matrix.form)) : 4 * size;
  }
  return w;
}

class Bench {
 public:
  Bench(Model& model, const BenchOptions& options, const BenchProgress& progress)
      : model_(model), o_(options), progress_(progress), work_(work_of(model)), probe_(chosen_isa().ok() ? *chosen_isa() : Isa::portable, options.threads, options.probe_bytes) {}

  Result<Value> run() {
    if (model_.program().find(Role::step) == nullptr) return invalid("this program has no step function to bench");
    ESPALIER_TRY(check());
    ESPALIER_ASSIGN(state_, model_.make_state());
    ESPALIER_TRY(fill(o_.depth));
    Value out = Value::object();
    Value calls = Value::array();
    std::vector<double> reads, peaks;
    for (const int32_t rows : o_.rows) {
      ESPALIER_TRY(tell(std::to_string(rows) + " rows"));
      ESPALIER_ASSIGN(Value call, time_call(rows, true, o_.rounds));
      reads.push_back(call.find("read_gbps")->as_double());
      peaks.push_back(call.find("int8_gops")->as_double());
      calls.push(std::move(call));
    }
    const Ceilings now = probe_.measure();
    reads.push_back(now.read_gbps);
    peaks.push_back(now.int8_gops);
    Value machine = Value::object();
    machine.set("read_gbps", *std::max_element(reads.begin(), reads.end()));
    machine.set("int8_gops", *std::max_element(peaks.begin(), peaks.end()));
    out.set("machine", std::move(machine));
    out.set("packed_bytes", static_cast<int64_t>(work_.bytes));
    out.set("macs_per_row", static_cast<int64_t>(work_.macs));
    out.set("depth", int64_t{o_.depth});
    out.set("calls", std::move(calls));
    ESPALIER_TRY(add_prefill(out));
    ESPALIER_TRY(add_decode(out));
    return out;
  }

 private:
  Status tell(const std::string& what) const {
    return progress_ && !progress_(what) ? Status(Code::cancelled, "the bench was cancelled") : Status();
  }
  int32_t token(int32_t i) const { return static_cast<int32_t>((static_cast<uint32_t>(i) * 2654435761u >> 8) % static_cast<uint32_t>(model_.program().vocabulary)); }

  // A chain of rows behind the state. `last_only`: prefill, where one row wants its argmax.
  Result<CallStats> call(State& state, int32_t rows, bool last_only, Outputs& out) {
    std::vector<Row> list;
    for (int32_t i = 0; i < rows; ++i)
      list.push_back({token(state.length() + i), 0, state.length() + i, i == 0 ? kState : i - 1, last_only && i + 1 < rows ? 0u : uint32_t{kWantArgmax}});
    State* states[] = {&state};
    Call c;
    c.rows = list;
    c.states = states;
    c.out = &out;
    return model_.run(c);
  }

  Status commit(State& state, int32_t rows) {
    std::vector<int32_t> path(static_cast<size_t>(rows));
    for (int32_t i = 0; i < rows; ++i) path[static_cast<size_t>(i)] = i;
    return state.commit(path);
  }

  Status fill(int32_t depth) {
    constexpr int32_t kChunk = 256;
    while (state_->length() < depth) {
      const int32_t rows = std::min(kChunk, depth - state_->length());
      ESPALIER_TRY(tell("filling the context, " + std::to_string(state_->length()) + " of " + std::to_string(depth)));
      Outputs out;
      ESPALIER_ASSIGN(const CallStats stats, call(*state_, rows, true, out));
      static_cast<void>(stats);
      ESPALIER_TRY(commit(*state_, rows));
    }
    return {};
  }

  // A result that depends on the width would make every time below worthless.
  Status check() {
    constexpr int32_t kRows = 8;
    ESPALIER_TRY(tell("comparing 8 rows with 8 calls of one"));
    ESPALIER_ASSIGN(const std::unique_ptr<State> wide, model_.make_state());
    ESPALIER_ASSIGN(const std::unique_ptr<State> serial, model_.make_state());
    Outputs all;
    ESPALIER_ASSIGN(const CallStats stats, call(*wide, kRows, false, all));
    static_cast<void>(stats);
    for (int32_t i = 0; i < kRows; ++i) {
      Outputs one;
      ESPALIER_ASSIGN(const CallStats single, call(*serial, 1, false, one));
      static_cast<void>(single);
      ESPALIER_TRY(commit(*serial, 1));
      if (one.argmax[0] != all.argmax[static_cast<size_t>(i)]) return {Code::internal, "row " + std::to_string(i) + " of 8 differs from the same row alone"};
    }
    return {};
  }

  Result<Value> time_call(int32_t rows, bool probes, int32_t rounds) {
    std::vector<double> ms, linear, reads, peaks, floors, shares;
    Outputs out;
    for (int32_t i = 0; i <= rounds; ++i) {
      const Ceilings c = probes ? probe_.measure() : Ceilings{};
      ESPALIER_ASSIGN(const CallStats stats, call(*state_, rows, false, out));
      if (i == 0) continue;  // the first one grows scratch
      ms.push_back(static_cast<double>(stats.t1_ns - stats.t0_ns) * 1e-6);
      linear.push_back(static_cast<double>(stats.linear_ns) * 1e-6);
      reads.push_back(c.read_gbps);
      peaks.push_back(c.int8_gops);
      floors.push_back(std::max(work_.bytes / c.read_gbps * 1e-6, rows * 2 * work_.macs / c.int8_gops * 1e-6));
      shares.push_back(floors.back() / (linear.back() > 0 ? linear.back() : ms.back()));
    }
    Value v = Value::object();
    v.set("rows", int64_t{rows});
    v.set("ms", median(ms));
    v.set("linear_ms", median(linear));
    v.set("read_gbps", median(reads));
    v.set("int8_gops", median(peaks));
    v.set("floor_ms", median(floors));
    v.set("share", median(shares));
    return v;
  }

  Status add_prefill(Value& out) {
    if (o_.prefill <= 0) return {};
    ESPALIER_TRY(tell("prefill of " + std::to_string(o_.prefill)));
    std::vector<double> ms, shares;
    Outputs answer;
    for (int32_t i = 0; i <= std::min(o_.rounds, 3); ++i) {
      const Ceilings c = probe_.measure();
      ESPALIER_ASSIGN(const CallStats stats, call(*state_, o_.prefill, true, answer));
      if (i == 0) continue;
      ms.push_back(static_cast<double>(stats.t1_ns - stats.t0_ns) * 1e-6);
      const double head = static_cast<double>(model_.program().vocabulary) * model_.program().hidden;  // one row only
      shares.push_back(o_.prefill * 2 * (work_.macs - head) / c.int8_gops * 1e-6 / ms.back());
    }
    Value v = Value::object();
    v.set("rows", int64_t{o_.prefill});
    v.set("ms", median(ms));
    v.set("tokens_per_second", 1000.0 * o_.prefill / median(ms));
    v.set("share_of_peak", median(shares));
    out.set("prefill", std::move(v));
    return {};
  }

  Status add_decode(Value& out) {
    if (o_.decode <= 0) return {};
    ESPALIER_TRY(tell("decoding " + std::to_string(o_.decode) + " tokens"));
    const std::unique_ptr<State> state = state_->fork();
    std::vector<double> ms;
    Outputs answer;
    for (int32_t i = 0; i < o_.decode; ++i) {
      ESPALIER_ASSIGN(const CallStats stats, call(*state, 1, false, answer));
      ms.push_back(static_cast<double>(stats.t1_ns - stats.t0_ns) * 1e-6);
      ESPALIER_TRY(commit(*state, 1));
    }
    Value v = Value::object();
    v.set("tokens", int64_t{o_.decode});
    v.set("ms_per_token", median(ms));
    v.set("tokens_per_second", 1000.0 / median(ms));
    out.set("decode", std::move(v));
    return {};
  }

  Model& model_;
  const BenchOptions& o_;
  const BenchProgress& progress_;
  Work work_;
  MachineProbe probe_;
  std::unique_ptr<State> state_;
};

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

Result<Value> bench_model(Model& model, const BenchOptions& options, const BenchProgress& progress) {
  for (const int32_t rows : options.rows)
    if (rows < 1 || rows > 4096) return invalid("rows: expected 1 to 4096, found " + std::to_string(rows), "rows");
  if (options.rounds < 1) return invalid("rounds: expected at least 1", "rounds");
  return Bench(model, options, progress).run();
}

std::string bench_text(const Value& r) {
  const auto number = [&](const char* path) { return r.find_path(path)->as_double(); };
  std::string out = line("machine   %6.1f GB/s read   %7.0f Gop/s int8\n", number("machine.read_gbps"), number("machine.int8_gops"));
  out += line("model     %6.2f GB packed   %7.2f G multiply-adds a row   %lld rows held\n\n", number("packed_bytes") * 1e-9, number("macs_per_row") * 1e-9,
              static_cast<long long>(r.find("depth")->as_int()));
  out += "   rows       ms   linear    floor   share\n";
  for (const Value& c : r.find("calls")->as_array())
    out += line("   %4lld %8.2f %8.2f %8.2f   %4.0f %%\n", static_cast<long long>(c.find("rows")->as_int()), c.find("ms")->as_double(), c.find("linear_ms")->as_double(),
                c.find("floor_ms")->as_double(), 100 * c.find("share")->as_double());
  if (r.find("prefill") != nullptr)
    out += line("\nprefill   %.0f rows in %.1f ms: %.1f tokens/s, %.0f %% of the int8 peak\n", number("prefill.rows"), number("prefill.ms"), number("prefill.tokens_per_second"),
                100 * number("prefill.share_of_peak"));
  if (r.find("decode") != nullptr)
    out += line("decode    %.2f ms a token: %.1f tokens/s\n", number("decode.ms_per_token"), number("decode.tokens_per_second"));
  return out;
}

}  // namespace espalier
