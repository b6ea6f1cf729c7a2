#include <algorithm>
#include <cmath>
#include <cstdio>

#include "convert/npu.h"

namespace espalier {
namespace {

struct Line {
  float largest_before = 0, largest_after = 0;
  int64_t values = 0;
  int64_t overflows_before = 0, overflows_after = 0;
  int64_t flushed_before = 0, flushed_after = 0;  // to zero
  int64_t faint_before = 0, faint_after = 0;      // below fp16's normal numbers, zeros included

  void add(const RangedQuantity& q, int32_t shift) {
    const RangeHistogram& r = q.range;
    largest_before = std::max(largest_before, r.largest());
    largest_after = std::max(largest_after, std::ldexp(r.largest(), shift));
    values += r.values();
    overflows_before += r.at_least(kOverflowExponent, 0);
    overflows_after += r.at_least(kOverflowExponent, shift);
    flushed_before += r.below(kZeroExponent, 0);
    flushed_after += r.below(kZeroExponent, shift);
    faint_before += r.below(kNormalExponent, 0);
    faint_after += r.below(kNormalExponent, shift);
  }
  double share(int64_t n) const { return values == 0 ? 0.0 : static_cast<double>(n) / static_cast<double>(values); }
};

// "self_attn.q_proj" of "model.layers.3.self_attn.q_proj.weight".
std::string short_name(const Program& program, const Op& op) {
  if (op.weights.empty() || op.weights[0] == kNone) return {};
  std::string name = program.weights[static_cast<size_t>(op.weights[0])].name;
  const std::string layer = "." + std::to_string(op.layer) + ".";
  if (const size_t at = name.find(layer); op.layer != kNone && at != std::string::npos) name.erase(0, at + layer.size());
  return name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
}

Value line_json(const Program& program, const Op& op, const Line& line) {
  Value v = Value::object();
  v.set("layer", op.layer == kNone ? Value() : Value(int64_t{op.layer}));
  v.set("op", op.name());
  v.set("weight", short_name(program, op));
  v.set("values", line.values);
  v.set("largest_before", static_cast<double>(line.largest_before));
  v.set("largest_after", static_cast<double>(line.largest_after));
  v.set("overflows_before", line.overflows_before);
  v.set("overflows_after", line.overflows_after);
  v.set("flushed_before", line.share(line.flushed_before));
  v.set("flushed_after", line.share(line.flushed_after));
  v.set("subnormal_before", line.share(line.faint_before));
  v.set("subnormal_after", line.share(line.faint_after));
  return v;
}

}  // namespace

Value npu_report_json(const Program& program, const NpuScales& scales) {
  const Function& step = *program.find(Role::step);
  std::vector<Line> lines(step.ops.size());
  for (const RangedQuantity& q : scales.quantities)
    if (q.op != kNone && q.kind == RangedQuantity::Kind::activation) lines[static_cast<size_t>(q.op)].add(q, q.exponent.at(scales.exponents));
  Value exponents = Value::object();
  for (size_t v = 0; v < scales.exponents.size(); ++v)
    if (scales.exponents[v] != 0) exponents.set(scales.scaling.variables[v], int64_t{scales.exponents[v]});
  Value list = Value::array();
  for (size_t i = 0; i < lines.size(); ++i)
    if (lines[i].values > 0) list.push(line_json(program, step.ops[i], lines[i]));
  Value v = Value::object();
  v.set("text", scales.text);
  v.set("positions", scales.positions);
  v.set("exponents", std::move(exponents));
  v.set("layers", std::move(list));
  return v;
}

std::string npu_report_text(const Value& report) {
  std::string out = "ranges on " + std::to_string(report.find("positions")->as_int()) + " tokens of " + report.find("text")->as_string() + ", before -> after\n";
  char text[320];
  std::snprintf(text, sizeof text, "%-44s %24s %22s %26s %26s\n", "", "largest", "overflows", "flushed to zero", "below normal numbers");
  out += text;
  for (const Value& l : report.find("layers")->as_array()) {
    const auto number = [&](const char* key) { return l.find(key)->as_double(); };
    const auto count = [&](const char* key) { return static_cast<long long>(l.find(key)->as_int()); };
    const std::string name = (l.find("layer")->is_null() ? std::string() : "layer " + std::to_string(l.find("layer")->as_int()) + " ") + l.find("op")->as_string() + (l.find("weight")->as_string().empty() ? "" : " " + l.find("weight")->as_string());
    std::snprintf(text, sizeof text, "%-44s %10.4g -> %-10.4g %9lld -> %-9lld %9.4f %% -> %8.4f %% %9.4f %% -> %8.4f %%\n", name.c_str(), number("largest_before"), number("largest_after"),
                  count("overflows_before"), count("overflows_after"), 100 * number("flushed_before"), 100 * number("flushed_after"), 100 * number("subnormal_before"),
                  100 * number("subnormal_after"));
    out += text;
  }
  std::string exponents;
  for (const auto& [name, e] : report.find("exponents")->as_object()) exponents += (exponents.empty() ? "" : ", ") + name + " 2^" + std::to_string(e.as_int());
  return out + "scales: " + (exponents.empty() ? "none: everything fits as it is" : exponents) + "\n";
}

}  // namespace espalier
