// Runs lowered functions by plain loops: the definition of each primitive, and the oracle of every back end.
//
// Numerics   f32     values in fp32, sums in double and rounded once
//            f16     every value, inputs included, rounded to fp16 (nearest even, subnormals kept); sums in fp32, ascending
//            coreai  as f16 and as Apple's Core AI runtime on Linux: matmul rounds each product and each partial sum to fp16
//            In f16 and coreai values below `flush_below` become zero, as some accelerators do; 0 keeps them.
// Threads    one run at a time; weights are only read. Threads split rows of products and change no bit.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "lower/bind.h"
#include "lower/lowered.h"

namespace espalier {

class ThreadTeam;

enum class Arithmetic : uint8_t { f32, f16, coreai };

struct EvaluateOptions {
  Arithmetic arithmetic = Arithmetic::f32;
  float flush_below = 0;
  uint32_t threads = 1;
  bool int8_inputs = false;  // of conv1x1: each row rounded to 127 steps of its largest |x|, a form that is measured, not lowered
  // Sees the values of each op before they are rounded, on the caller's thread. May be empty.
  std::function<void(int32_t function, size_t op, std::span<const float> values)> observe = {};
};

struct NamedValues {
  std::string name;
  std::vector<float> data;  // row-major in the port's shape; i32 as whole numbers
};

// What rounding did to the values of one op over all runs.
struct RangeCount {
  int64_t values = 0;
  int64_t overflows = 0;  // finite before, infinite after rounding to fp16
  int64_t flushed = 0;    // not zero before, zero after (by rounding or by the threshold)
  float largest = 0;      // |x| before rounding
};

class Evaluator {
 public:
  // Borrows both. Requires: a verified program and the tensors bound to it.
  Evaluator(const LoweredProgram& program, const LoweredTensors& tensors, const EvaluateOptions& options);
  ~Evaluator();

  // `states` by state of the program, each of the function's state_shape; read and written in place. A missing input or a
  // wrong size is refused by its name and changes nothing. `outputs` is replaced.
  Status run(int32_t function, std::span<const NamedValues> inputs, std::span<std::vector<float>> states, std::vector<NamedValues>& outputs);

  // By function and op; empty in f32.
  const std::vector<std::vector<RangeCount>>& counts() const { return counts_; }
  void clear_counts();

 private:
  const LoweredProgram& program_;
  const LoweredTensors& tensors_;
  EvaluateOptions options_;
  std::unique_ptr<ThreadTeam> team_;
  std::vector<std::vector<RangeCount>> counts_;
};

// Lines "layer 3 attention mul: 12 overflows, ..." of the ops that overflowed or flushed, in order; empty: none did.
std::string range_report(const LoweredFunction& function, std::span<const RangeCount> counts);

}  // namespace espalier
