#include "convert/choose_scales.h"

#include <algorithm>
#include <cstdlib>

namespace espalier {
namespace {

constexpr int32_t kReach = 48;     // of an exponent
constexpr int32_t kShiftMax = 192; // of a quantity: several exponents together
constexpr int32_t kRounds = 16;
constexpr double kOverflow = 1e6, kTight = 4, kLost = 64;  // for an octave above fp16, an octave of headroom, all notable numbers
constexpr double kMoved = 0.1, kResidualMoved = 1;         // for each octave that a variable moves: one in 640 numbers, one in 64

double cost_of(const RangedQuantity& q, int32_t shift) {
  if (q.range.largest() == 0) return 0;
  // The largest weight of a row is 127 of its scale.
  const int32_t top = q.range.top() + shift + (q.kind == RangedQuantity::Kind::row_scale ? 7 : 0);
  double cost = 0;
  if (top >= kOverflowExponent) cost += kOverflow * (top - kOverflowExponent + 1);
  if (top > kHeadroomTop) cost += kTight * (top - kHeadroomTop);
  const int64_t notable = q.range.notable(kNotableOctaves);
  const int64_t lost = std::min(q.range.notable_below(kNormalExponent, shift, kNotableOctaves), notable);
  return cost + kLost * static_cast<double>(lost) / static_cast<double>(notable);
}

// Costs by shift, counted once.
struct Table {
  const RangedQuantity* quantity;
  std::vector<double> costs;
  double at(int32_t shift) const { return costs[static_cast<size_t>(std::clamp(shift, -kShiftMax, kShiftMax) + kShiftMax)]; }
};

double moved(size_t variable, int32_t exponent) { return (variable == 0 ? kResidualMoved : kMoved) * std::abs(exponent); }

}  // namespace

std::vector<int32_t> choose_scales(const Scaling& scaling, std::span<const RangedQuantity> quantities) {
  std::vector<int32_t> chosen(scaling.variables.size());
  std::vector<Table> tables;
  std::vector<std::vector<size_t>> touched(chosen.size());  // by variable: tables that it moves
  for (const RangedQuantity& q : quantities) {
    if (q.exponent.terms().empty()) continue;
    for (const auto& [variable, coefficient] : q.exponent.terms()) touched[static_cast<size_t>(variable)].push_back(tables.size());
    Table& t = tables.emplace_back(Table{&q, {}});
    for (int32_t shift = -kShiftMax; shift <= kShiftMax; ++shift) t.costs.push_back(cost_of(q, shift));
  }
  const auto cost = [&](size_t variable) {
    double sum = moved(variable, chosen[variable]);
    for (const size_t t : touched[variable]) sum += tables[t].at(tables[t].quantity->exponent.at(chosen));
    return sum;
  };
  for (int32_t round = 0; round < kRounds; ++round) {
    const std::vector<int32_t> before = chosen;
    for (size_t v = 0; v < chosen.size(); ++v) {
      int32_t best = chosen[v];
      double least = cost(v);
      for (int32_t size = 0; size <= kReach; ++size)
        for (const int32_t e : {size, -size}) {
          chosen[v] = e;
          if (const double c = cost(v); c < least) {
            least = c;
            best = e;
          }
        }
      chosen[v] = best;
    }
    if (chosen == before) break;
  }
  return chosen;
}

}  // namespace espalier
