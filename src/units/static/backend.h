// What runs the lowered functions of a static unit: the evaluator, or a vendor's runtime.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "lower/evaluate.h"
#include "units/unit.h"

namespace espalier {

// One model's functions. One run at a time.
class StaticBackend {
 public:
  virtual ~StaticBackend() = default;
  // The contract of Evaluator::run.
  virtual Status run(int32_t function, std::span<const NamedValues> inputs, std::span<std::vector<float>> states, std::vector<NamedValues>& outputs) = 0;
  // What rounding did, for people; empty where nothing was counted.
  virtual std::string range_report() const { return {}; }
};

// Borrows the lowered program, which outlives the back end; copies what it needs of the weights.
using MakeBackend = std::function<Result<std::unique_ptr<StaticBackend>>(const LoweredProgram& lowered, const Program& program, const WeightSet& weights)>;

MakeBackend evaluator_backend(const EvaluateOptions& options);

}  // namespace espalier
