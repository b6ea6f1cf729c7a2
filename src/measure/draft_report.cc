// How the draft bench is told: JSON, and tables for people.
#include <algorithm>
#include <cstdio>

#include "measure/draft_bench.h"

namespace espalier {
namespace {

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

double tokens_per_second(const DraftCell& c) {
  const double ms = median(c.round_ms);
  return ms > 0 ? 1000.0 * static_cast<double>(c.tokens) / ms : 0;
}

// The chain that trees are compared with: the first of the modes, if any.
std::string chain_of(const DraftBench& bench) {
  for (const std::string& m : bench.modes)
    if (m.starts_with("chain:")) return m;
  return {};
}

// Milliseconds for each token, of the timed rounds.
SpeculationStats::Milliseconds per_token(const DraftCell& c) {
  const double n = static_cast<double>(c.tokens) * static_cast<double>(c.round_ms.size());
  if (n <= 0) return {};
  return {c.stats.ms.draft / n, c.stats.ms.verify / n, c.stats.ms.commit / n, c.stats.ms.host / n};
}

Value ratio_json(const Ratio& r) {
  Value v = Value::object();
  v.set("median", r.median);
  v.set("low", r.low);
  v.set("high", r.high);
  return v;
}

Value source_json(const SpeculationStats::Source& s) {
  Value v = Value::object(), bins = Value::array();
  v.set("name", s.name);
  v.set("drafted", s.drafted);
  v.set("offered", s.reached.offered);
  v.set("accepted", s.reached.accepted);
  v.set("log_loss", s.reliability.mean_log_loss());
  for (const Reliability::Bin& b : s.reliability.bins) {
    Value bin = Value::object();
    bin.set("count", b.count);
    bin.set("accepted", b.accepted);
    bin.set("predicted", b.predicted);
    bins.push(std::move(bin));
  }
  v.set("reliability", std::move(bins));
  return v;
}

Value cell_json(const DraftBench& bench, const std::map<std::string, std::map<std::string, DraftCell>>& cells, const std::string& mode, const std::string& kind) {
  const DraftCell& c = cells.at(mode).at(kind);
  Value v = Value::object();
  v.set("mode", mode);
  v.set("answers_that_are", kind);
  v.set("answers", c.answers);
  v.set("tokens", c.tokens);
  v.set("tokens_per_second", tokens_per_second(c));
  v.set("ratio_to_off", ratio_json(ratio_of(cells.at("off").at(kind), c)));
  const std::string chain = chain_of(bench);
  if (!chain.empty()) v.set("ratio_to_chain", ratio_json(ratio_of(cells.at(chain).at(kind), c)));
  if (mode == "off") return v;
  v.set("cycles", c.stats.cycles);
  v.set("tokens_per_cycle", c.stats.tokens_per_cycle());
  v.set("rows_per_cycle", c.stats.rows_per_cycle());
  Value depths = Value::array(), survival = Value::array(), sources = Value::array(), ms = Value::object();
  for (const SpeculationStats::Tally& t : c.stats.by_depth) {
    Value d = Value::object();
    d.set("offered", t.offered);
    d.set("accepted", t.accepted);
    depths.push(std::move(d));
  }
  for (const double s : c.stats.survival()) survival.push(s);
  for (const SpeculationStats::Source& s : c.stats.by_source) sources.push(source_json(s));
  v.set("by_depth", std::move(depths));
  v.set("survival", std::move(survival));
  v.set("by_source", std::move(sources));
  const SpeculationStats::Milliseconds each = per_token(c);
  ms.set("draft", each.draft);
  ms.set("verify", each.verify);
  ms.set("commit", each.commit);
  ms.set("host", each.host);
  v.set("ms_per_token", std::move(ms));
  return v;
}

Value platts_json(const std::vector<Platt>& platts) {
  Value list = Value::array();
  for (const Platt& p : platts) {
    Value v = Value::object();
    v.set("a", static_cast<double>(p.a));
    v.set("b", static_cast<double>(p.b));
    list.push(std::move(v));
  }
  return list;
}

std::vector<std::string> kinds_of(const DraftTable& table) {
  std::vector<std::string> kinds;
  for (const auto& [kind, cell] : table.cells.at("off")) kinds.push_back(kind);
  return kinds;  // all, call, prose
}

std::string rows_text(const DraftBench& bench, const DraftTable& table, const std::string& kind) {
  const std::string chain = chain_of(bench);
  std::string out = line("\ntemperature %g, %s: %lld answers, %lld tokens behind the first\n", table.temperature, kind == "all" ? "all answers" : kind == "call" ? "calls" : "prose",
                         static_cast<long long>(table.cells.at("off").at(kind).answers), static_cast<long long>(table.cells.at("off").at(kind).tokens));
  out += "  mode       tokens/s   x off (low - high)   x chain   tokens/cycle  rows/cycle   ms a token: draft  verify  commit    host\n";
  for (const std::string& mode : bench.modes) {
    const DraftCell& c = table.cells.at(mode).at(kind);
    const Ratio off = ratio_of(table.cells.at("off").at(kind), c), to_chain = chain.empty() ? Ratio{} : ratio_of(table.cells.at(chain).at(kind), c);
    out += line("  %-9s %9.1f   %5.2f (%4.2f - %4.2f)   %7.2f", mode.c_str(), tokens_per_second(c), off.median, off.low, off.high, to_chain.median);
    const SpeculationStats::Milliseconds ms = per_token(c);
    if (mode != "off")
      out += line("   %12.3f  %10.2f              %8.3f%8.3f%8.3f%8.3f", c.stats.tokens_per_cycle(), c.stats.rows_per_cycle(), ms.draft, ms.verify, ms.commit, ms.host);
    out += "\n";
  }
  return out;
}

std::string acceptance_text(const DraftBench& bench, const DraftTable& table, const std::string& kind) {
  std::string out = "\n  share of the cycles that reach each depth, temperature " + line("%g", table.temperature) + (kind == "call" ? ", calls\n" : ", prose\n");
  for (const std::string& mode : bench.modes) {
    if (mode == "off") continue;
    const DraftCell& c = table.cells.at(mode).at(kind);
    out += line("  %-9s", mode.c_str());
    const std::vector<double> survival = c.stats.survival();
    for (size_t d = 0; d < std::min<size_t>(survival.size(), 12); ++d) out += line(" %5.3f", survival[d]);
    for (const SpeculationStats::Source& s : c.stats.by_source)
      out += line("  %s %lld of %lld", s.name.c_str(), static_cast<long long>(s.reached.accepted), static_cast<long long>(s.reached.offered));
    out += "\n";
  }
  return out;
}

// Of the mode that asked for most.
std::string reliability_text(const DraftTable& table) {
  const DraftCell* widest = nullptr;
  std::string mode;
  for (const auto& [name, kinds] : table.cells) {
    const DraftCell& c = kinds.at("all");
    if (name == "off" || (widest != nullptr && c.stats.rows <= widest->stats.rows)) continue;
    widest = &c;
    mode = name;
  }
  if (widest == nullptr) return {};
  std::string out;
  for (const SpeculationStats::Source& s : widest->stats.by_source) {
    out += line("\n  %s with %s, temperature %g: log loss %.4f over %lld proposals\n  promised", s.name.c_str(), mode.c_str(), table.temperature, s.reliability.mean_log_loss(),
                static_cast<long long>(s.reliability.count()));
    for (const Reliability::Bin& b : s.reliability.bins) out += line(" %7.3f", b.count == 0 ? 0.0 : b.predicted / static_cast<double>(b.count));
    out += "\n  came    ";
    for (const Reliability::Bin& b : s.reliability.bins) out += line(" %7.3f", b.count == 0 ? 0.0 : static_cast<double>(b.accepted) / static_cast<double>(b.count));
    out += "\n  of      ";
    for (const Reliability::Bin& b : s.reliability.bins) out += line(" %7lld", static_cast<long long>(b.count));
    out += "\n";
  }
  return out;
}

std::string platts_text(const char* name, const std::vector<Platt>& platts) {
  std::string out = line("  %-18s", name);
  for (const Platt& p : platts) out += line(" (%.3f, %.3f)", static_cast<double>(p.a), static_cast<double>(p.b));
  return out + "\n";
}

}  // namespace

Value drafts_json(const DraftBench& bench) {
  Value v = Value::object(), rows = Value::array(), platts = Value::object();
  for (const DraftTable& table : bench.tables)
    for (const std::string& kind : kinds_of(table))
      for (const std::string& mode : bench.modes) {
        Value row = cell_json(bench, table.cells, mode, kind);
        row.set("temperature", table.temperature);
        rows.push(std::move(row));
      }
  v.set("drafts", std::move(rows));
  platts.set("ngram", platts_json(bench.ngram));
  platts.set("dspark_greedy", platts_json(bench.greedy));
  platts.set("dspark_sampled", platts_json(bench.sampled));
  v.set("platt", std::move(platts));
  return v;
}

std::string drafts_text(const DraftBench& bench) {
  std::string out;
  for (const DraftTable& table : bench.tables) {
    for (const std::string& kind : kinds_of(table)) out += rows_text(bench, table, kind);
    for (const std::string& kind : kinds_of(table))
      if (kind != "all") out += acceptance_text(bench, table, kind);
    out += reliability_text(table);
  }
  out += "\n  Platt (a, b) by match length 2, 3 ... or depth 1, 2 ...\n";
  return out + platts_text("ngram", bench.ngram) + platts_text("dspark, greedy", bench.greedy) + platts_text("dspark, sampled", bench.sampled);
}

}  // namespace espalier
