#include "cli/stats.h"

#include <cstdio>

#include "base/json.h"
#include "cli/terminal.h"

namespace espalier::cli {

bool StreamPrinter::print(const Delta& delta) {
  if (delta.kind == Delta::Kind::reasoning) {
    if (!quiet_) err(delta.text);
    in_reasoning_ = true;
    return !out_closed();
  }
  if (in_reasoning_ && !quiet_) err("\n");
  in_reasoning_ = false;
  if (delta.kind == Delta::Kind::text) {
    printed_ = true;
    return out(delta.text);
  }
  Value call = Value::object();
  call.set("name", delta.call->name);
  auto arguments = parse_json(delta.call->arguments);
  call.set("arguments", arguments.ok() ? *arguments : Value(delta.call->arguments));
  return out((printed_ ? "\n" : "") + to_json(call));
}

void StreamPrinter::end() {
  if (in_reasoning_ && !quiet_) err("\n");
  out("\n");
}

namespace {

// What drafting did: "3 cycles of 23.7 rows and 4.00 tokens", the times, then each depth and source.
std::string drafts_text(const SpeculationReport& r) {
  if (r.cycles == 0) return "drafts  " + r.mode + ": no cycle\n";
  const double cycles = static_cast<double>(r.cycles);
  char text[400];
  snprintf(text, sizeof text,
           "drafts  %s: %lld cycles of %.1f rows and %.2f tokens; draft %.1f ms, verify %.1f ms, commit %.1f ms, host %.1f ms\n", r.mode.c_str(),
           static_cast<long long>(r.cycles), static_cast<double>(r.rows) / cycles, static_cast<double>(r.tokens) / cycles, r.draft_ms, r.verify_ms,
           r.commit_ms, r.host_ms);
  std::string out = text;
  if (!r.by_depth.empty()) out += "        accepted of offered, by depth:";
  for (const SpeculationReport::Depth& d : r.by_depth) out += " " + std::to_string(d.accepted) + "/" + std::to_string(d.offered);
  if (!r.by_depth.empty()) out += "\n";
  for (const SpeculationReport::Source& s : r.by_source)
    out += "        " + s.name + ": " + std::to_string(s.drafted) + " drafted, " + std::to_string(s.accepted) + " accepted of " +
           std::to_string(s.offered) + " whose parent was right\n";
  return out;
}

}  // namespace

std::string stats_text(const Answer& answer, const EngineInfo& info) {
  const Timings& t = answer.timings;
  const auto rate = [](int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) * 1000 / ms : 0.0; };
  char text[1024];
  snprintf(text, sizeof text,
           "%s on %s (%s, %u threads), weights %s, kv %s\n"
           "load    %10.1f ms\n"
           "prefill %10.1f ms  %6lld tokens  %8.1f tokens/s, %lld reused\n"
           "decode  %10.1f ms  %6lld tokens  %8.1f tokens/s\n"
           "first token after %.1f ms; finish: %s; seed %llu\n",
           info.family.c_str(), info.unit.c_str(), info.kernels.c_str(), info.threads, info.weights.c_str(), info.kv.c_str(), t.load_ms,
           t.prefill_ms, static_cast<long long>(t.prefill_tokens), rate(t.prefill_tokens, t.prefill_ms),
           static_cast<long long>(t.reused_tokens), t.decode_ms, static_cast<long long>(t.decode_tokens), rate(t.decode_tokens, t.decode_ms),
           t.ttft_ms, finish_reason_name(answer.finish_reason), static_cast<unsigned long long>(answer.seed));
  return text + (answer.speculation ? drafts_text(*answer.speculation) : std::string());
}

}  // namespace espalier::cli
