#include "decode/cost_curve.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// Noise only ever adds. A width that looks dearer than a wider one by more than this was disturbed: it is held to it, so that one
// bad median doesn't lift the widths that it is made level with.
constexpr double kDisturbed = 1.1;

void hold_disturbed(std::vector<double>& values) {
  for (size_t i = values.size(); i-- > 1;) values[i - 1] = std::min(values[i - 1], kDisturbed * values[i]);
}

// Values at the measured widths, isotonic; the others on the line between their neighbours, narrower ones level, wider ones in
// proportion to their rows.
void fill_band(CostCurve::Band& band, const std::map<int32_t, std::vector<double>>& by_rows) {
  std::vector<double> values, weights;
  std::vector<int32_t> rows;
  for (const auto& [row, times] : by_rows) {
    rows.push_back(row);
    values.push_back(median(times));
    weights.push_back(static_cast<double>(times.size()));
  }
  hold_disturbed(values);
  values = isotonic(values, weights);
  size_t next = 0;
  for (int32_t r = 1; r <= kDraftRowsMax; ++r) {
    while (next < rows.size() && rows[next] < r) ++next;
    double& ms = band.ms[static_cast<size_t>(r - 1)];
    if (next == 0) {
      ms = values.front();
    } else if (next == rows.size()) {
      ms = values.back() * static_cast<double>(r) / static_cast<double>(rows.back());
    } else {
      const double share = static_cast<double>(r - rows[next - 1]) / static_cast<double>(rows[next] - rows[next - 1]);
      ms = values[next - 1] + share * (values[next] - values[next - 1]);
    }
  }
}

}  // namespace

double CostCurve::ms(int32_t rows, double context) const {
  ESP_CHECK(rows >= 1 && !bands.empty());
  const size_t at = static_cast<size_t>(std::min(rows, kDraftRowsMax) - 1);
  const double beyond = rows > kDraftRowsMax ? static_cast<double>(rows) / kDraftRowsMax : 1;
  size_t upper = 1;
  while (upper < bands.size() && bands[upper].context < context) ++upper;
  upper = std::min(upper, bands.size() - 1);
  const Band& low = bands[upper > 0 ? upper - 1 : 0];
  const Band& high = bands[upper];
  if (context <= low.context || high.context <= low.context) return low.ms[at] * beyond;
  const double slope = (high.ms[at] - low.ms[at]) / (high.context - low.context);
  // Noise may let a wider context look cheaper; beyond the last band that must not run below zero.
  const double within = std::min(context, high.context) - low.context, past = std::max(context - high.context, 0.0);
  return (low.ms[at] + slope * within + std::max(slope, 0.0) * past) * beyond;
}

CostCurve fit_curve(std::span<const CostSample> samples) {
  std::map<double, std::map<int32_t, std::vector<double>>> by_context;
  for (const CostSample& s : samples)
    if (s.rows >= 1 && s.rows <= kDraftRowsMax && s.ms > 0 && s.ms < 1e12 && s.context >= 0) by_context[s.context][s.rows].push_back(s.ms);
  CostCurve curve;
  curve.measured = true;
  for (const auto& [context, by_rows] : by_context) {
    curve.bands.push_back({context, {}});
    fill_band(curve.bands.back(), by_rows);
  }
  return curve;
}

CostCurve modelled_curve(const Ceilings& c) {
  CostCurve curve;
  for (const double context : {0.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0}) {
    CostCurve::Band band{context, {}};
    for (int32_t r = 1; r <= kDraftRowsMax; ++r)
      band.ms[static_cast<size_t>(r - 1)] =
          std::max((c.weight_bytes + c.position_bytes * context) / c.bytes_per_ms, static_cast<double>(r) / c.rows_per_ms) + c.host_ms;
    curve.bands.push_back(band);
  }
  return curve;
}

std::vector<double> isotonic(std::span<const double> values, std::span<const double> weights) {
  ESP_CHECK(values.size() == weights.size());
  struct Block {
    double mean, weight;
    size_t count;
  };
  std::vector<Block> blocks;
  for (size_t i = 0; i < values.size(); ++i) {
    blocks.push_back({values[i], weights[i], 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean > blocks.back().mean) {
      const Block b = blocks.back();
      blocks.pop_back();
      Block& a = blocks.back();
      a.mean = (a.mean * a.weight + b.mean * b.weight) / (a.weight + b.weight);
      a.weight += b.weight;
      a.count += b.count;
    }
  }
  std::vector<double> out;
  for (const Block& b : blocks) out.insert(out.end(), b.count, b.mean);
  return out;
}

}  // namespace espalier
