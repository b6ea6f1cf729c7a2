// Powers of two by which a decoder's values can be multiplied without changing what it computes.
//
// A value times 2^e needs its producer's weights times 2^e and its readers' times 2^-e. What stands free, each with a variable of its
// own: the residual stream as a whole (with the eps of the norms that read it), each norm's output, v, up, the three parts of a short
// convolution's input and its taps, q and k before their norms together (with eps), q against k behind them. What stands fixed: gate
// (the sigmoid is no power law), scores, logits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lower/lowered.h"
#include "program/program.h"

namespace espalier {

// Sum of coefficient times variable.
class ExponentSum {
 public:
  static ExponentSum of(int32_t variable);
  ExponentSum operator+(const ExponentSum& other) const;
  ExponentSum operator-() const;
  ExponentSum operator-(const ExponentSum& other) const { return *this + -other; }
  int32_t at(const std::vector<int32_t>& exponents) const;  // its number
  const std::map<int32_t, int32_t>& terms() const { return terms_; }
  bool operator==(const ExponentSum&) const = default;

 private:
  std::map<int32_t, int32_t> terms_;  // without zeros
};
// Of equal parts of a value's channels: one, or three where a short convolution reads it.
using PartExponents = std::vector<ExponentSum>;

struct Scaling {
  std::vector<std::string> variables;   // "layer 3 up"; the first is "residual"
  std::vector<PartExponents> values;    // by ValueId of the function
  std::vector<PartExponents> weights;   // by WeightId, parts of rows (of a vector: of entries); empty: the function does not use it
  std::vector<ExponentSum> norm_inputs; // by op: what its norm's eps follows; empty sums elsewhere
  std::map<StateId, PartExponents> keys, states;  // K; V or frames
};

// Of the program's function `step`. Refused: a program without one; an op or a shared weight for which nothing above holds, named.
Result<Scaling> find_scaling(const Program& program);

// By value of a lowered function: its exponents. Requires: lowered from that program's `step`, norms scaled.
std::vector<PartExponents> lowered_exponents(const Scaling& scaling, const Program& program, const LoweredProgram& lowered, const LoweredFunction& function);

}  // namespace espalier
