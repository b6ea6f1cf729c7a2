#include <algorithm>
#include <cstdio>

#include "measure/fidelity.h"

namespace espalier {
namespace {

constexpr double kTie = 0.03;  // logits this close may change places through rounding alone

Value count_json(const FidelityCount& c) {
  Value v = Value::object();
  v.set("positions", c.positions);
  v.set("agree", c.agree);
  v.set("agreement_percent", c.percent());
  v.set("kl", c.mean_divergence());
  v.set("unanswered", c.unanswered);
  return v;
}

Value difference_json(const Engine::Impl& engine, const FidelityDifference& d) {
  const auto token = [&](int32_t id) {
    Value t = Value::object();
    t.set("id", id);
    t.set("text", engine.tokenizer.decode(std::span(&id, 1), false));
    return t;
  };
  Value v = Value::object();
  v.set("text", d.text);
  v.set("position", d.position);
  v.set("assistant", d.assistant);
  v.set("token", token(d.token));
  v.set("reference", token(d.reference));
  v.set("model", token(d.model));
  v.set("gap", d.gap);
  v.set("model_gap", d.model_gap);
  return v;
}

std::string line(const std::string& name, const FidelityCount& c) {
  char text[160];
  std::snprintf(text, sizeof text, "%-24s %9lld %9lld %9.3f %% %12.3g", name.c_str(), static_cast<long long>(c.positions), static_cast<long long>(c.positions - c.agree), c.percent(), c.mean_divergence());
  return text + (c.unanswered > 0 ? "   " + std::to_string(c.unanswered) + " unanswered" : std::string()) + "\n";
}

std::string quoted(const Engine::Impl& engine, int32_t id) {
  std::string out = "\"";
  for (const char c : engine.tokenizer.decode(std::span(&id, 1), false)) out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : std::string(1, c);
  return out + "\"";
}

std::string difference_line(const Engine::Impl& engine, const FidelityDifference& d) {
  char gap[64];
  std::snprintf(gap, sizeof gap, "%.4g", d.gap);
  return "  " + d.text + ", position " + std::to_string(d.position) + (d.assistant ? " (assistant)" : "") + ", behind " + quoted(engine, d.token) + ": reference " +
         quoted(engine, d.reference) + ", model " + quoted(engine, d.model) + ", " + gap + " apart\n";
}

int64_t ties(const Fidelity& f, bool assistant_only) {
  return std::count_if(f.differences.begin(), f.differences.end(), [&](const FidelityDifference& d) { return d.gap < kTie && (d.assistant || !assistant_only); });
}

}  // namespace

Value fidelity_json(const Engine::Impl& engine, const Fidelity& f) {
  Value v = Value::object();
  v.set("texts", f.texts);
  v.set("assistant", count_json(f.assistant));
  v.set("all", count_json(f.all));
  Value bands = Value::array();
  for (const FidelityBand& b : f.bands) {
    Value band = Value::object();
    band.set("begin", b.begin);
    band.set("end", b.end);
    band.set("assistant", count_json(b.assistant));
    band.set("all", count_json(b.all));
    bands.push(std::move(band));
  }
  v.set("bands", std::move(bands));
  v.set("tie_below", kTie);
  v.set("assistant_ties", ties(f, true));
  v.set("all_ties", ties(f, false));
  v.set("unanswered_why", f.unanswered_why.empty() ? Value() : Value(f.unanswered_why));
  Value differences = Value::array();
  for (const FidelityDifference& d : f.differences) differences.push(difference_json(engine, d));
  v.set("differences", std::move(differences));
  return v;
}

std::string fidelity_text(const Engine::Impl& engine, const Fidelity& f, size_t shown) {
  std::string out = std::to_string(f.texts) + (f.texts == 1 ? " text\n" : " texts\n");
  out += "positions                    count    differ    agreement  KL (nats)\n";
  out += line("assistant", f.assistant) + line("all", f.all);
  for (const FidelityBand& b : f.bands) {
    const std::string range = std::to_string(b.begin) + " to " + std::to_string(b.end - 1);
    if (b.assistant.positions > 0) out += line("assistant " + range, b.assistant);
    out += line("all " + range, b.all);
  }
  if (!f.unanswered_why.empty()) out += "no answer: " + f.unanswered_why + "\n";
  const bool assistant = f.assistant.positions > 0;
  std::vector<FidelityDifference> listed;
  std::copy_if(f.differences.begin(), f.differences.end(), std::back_inserter(listed), [&](const FidelityDifference& d) { return d.assistant || !assistant; });
  if (listed.empty()) return out;
  out += std::to_string(listed.size()) + (assistant ? " of the assistant's" : "") + " choices differ, " + std::to_string(ties(f, assistant)) + " of them where the reference's logits are less than 0.03 apart" +
         (listed.size() > shown ? "; the first " + std::to_string(shown) : "") + ":\n";
  for (size_t i = 0; i < std::min(shown, listed.size()); ++i) out += difference_line(engine, listed[i]);
  return out;
}

}  // namespace espalier
