// Where the sizes of a model's numbers lie: counted on a text, so that what any power of two does to them is known without a second run.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "convert/scaling.h"
#include "lower/evaluate.h"
#include "program/weight_set.h"

namespace espalier {

// Counts of |x| by floor(log2 |x|); zeros and what is not finite apart.
class RangeHistogram {
 public:
  static constexpr int32_t kLowest = -80, kHighest = 79;  // sizes beyond count at the ends

  void add(std::span<const float> values);
  void add(float value) { add(std::span(&value, 1)); }
  void merge(const RangeHistogram& other);

  int64_t values() const { return values_; }
  float largest() const { return largest_; }
  int32_t top() const;  // exponent of the largest; kLowest - 1: all zero
  // Of 2^shift times the values.
  int64_t at_least(int32_t exponent, int32_t shift) const;  // |x| >= 2^exponent
  int64_t below(int32_t exponent, int32_t shift) const;     // 0 < |x| < 2^exponent
  // The same among those that are more than 2^-octaves of the largest; and how many these are.
  int64_t notable_below(int32_t exponent, int32_t shift, int32_t octaves) const;
  int64_t notable(int32_t octaves) const;

 private:
  int64_t between(int32_t from, int32_t to) const;  // exponents [from, to)
  std::array<int64_t, static_cast<size_t>(kHighest - kLowest + 1)> counts_{};
  int64_t values_ = 0;
  float largest_ = 0;
};

// Numbers that share a scale: values of one primitive, a weight's rows, ...
struct RangedQuantity {
  enum class Kind { activation, epsilon, vector, row_scale };
  Kind kind = Kind::activation;
  int32_t op = kNone;  // of the function step; kNone: of the program's frame
  std::string what;    // "mul", or a weight's name
  ExponentSum exponent;
  RangeHistogram range;
};

// Runs every text in fp32 and counts all values of the function step, the rows of a window that stand for nothing included. Fails:
// a text that is empty or longer than `longest_text`, a program that has no lowering.
struct CalibrationText {
  std::vector<std::vector<int32_t>> texts;
  std::string name;  // for the report
};
using CalibrationProgress = std::function<bool(int64_t done, int64_t total)>;
Result<std::vector<RangedQuantity>> measure_ranges(const Program& program, const WeightSet& weights, const Scaling& scaling, const CalibrationText& text, uint32_t threads, const CalibrationProgress& progress);

// The weights' own: vectors' values, and what the scales of rows will be as int8.
std::vector<RangedQuantity> weight_ranges(const Program& program, const WeightSet& weights, const Scaling& scaling);

}  // namespace espalier
