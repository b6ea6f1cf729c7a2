// A program rewritten for static-shape accelerators: straight lists of about 25 primitives at fixed shapes, as plain data.
//
// Goals      one form that the evaluator runs, that exporters print, and that can be dumped, verified and linted before any
//            vendor's compiler sees it.
// Non-goals  no numbers live here but literals: weights are bound by name and index (bind.h).
//
// Layout     activations are (1, C, 1, S): channels, then the rows of the window on the last, contiguous axis. Row-major.
// Types      f16 values, i8 weights with an f16 scale for each output, i32 for indices that leave the program.
//            A back end may compute wider; the evaluator's fp32 mode keeps every value in fp32.
// A value is written by exactly one op; ops stand in execution order. primitives.h says what each op means.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace espalier {

using Shape = std::vector<int32_t>;
int64_t elements(const Shape& shape);
std::string shape_text(const Shape& shape);  // "(1, 64, 1, 32)"

enum class ScalarType : uint8_t { f16, i8, i32 };
const char* scalar_name(ScalarType type);

enum class Primitive : uint8_t {
  weight, literal, dequantise, read_state, write_state,
  conv1x1, matmul, add, sub, mul, div, maximum, sigmoid, exp, rsqrt, softmax,
  reduce_sum, reduce_mean, reduce_max, argmax, reshape, transpose, slice, concat, update_block,
};
inline constexpr std::array<const char*, 25> kPrimitiveNames = {
    "weight", "literal", "dequantise", "read_state", "write_state",
    "conv1x1", "matmul", "add", "sub", "mul", "div", "maximum", "sigmoid", "exp", "rsqrt", "softmax",
    "reduce_sum", "reduce_mean", "reduce_max", "argmax", "reshape", "transpose", "slice", "concat", "update_block"};

// Part of a weight of the original program, shared by all functions.
struct LoweredWeight {
  enum class Part {
    values,  // rows [first, first + rows) of a matrix, or a vector from `first` on
    scales,  // of the same rows of an int8 matrix
    column,  // column `first` of a small kernel (taps)
  };
  std::string name;
  WeightId source = kNone;
  Part part = Part::values;
  int32_t first = 0, rows = 0;
  ScalarType type = ScalarType::f16;
  Shape shape;
  bool operator==(const LoweredWeight&) const = default;
};

// A state of a function; (1, channels, 1, length) where length is the function's bucket, or kFrameSlots for frames.
struct LoweredState {
  std::string name;  // the StateDecl's, with ".k" or ".v" for K/V
  StateId source = kNone;
  bool is_kv = false;
  int32_t channels = 0;
  bool operator==(const LoweredState&) const = default;
};

struct LoweredValue {
  std::string name;
  ScalarType type = ScalarType::f16;
  Shape shape;
  bool operator==(const LoweredValue&) const = default;
};

struct PrimitiveOp {
  Primitive kind;
  std::vector<ValueId> in;
  ValueId out = kNone;     // kNone: write_state
  int32_t index = kNone;   // weight: of LoweredProgram::weights; read_state, write_state: of states
  int32_t axis = 0;        // softmax, reduce_*, argmax, slice, concat, update_block
  int32_t begin = 0;       // slice: [begin, begin + the output's extent) of the axis
  float value = 0;         // literal
  std::vector<int32_t> order;  // transpose: output axis i is input axis order[i]
  int32_t source = kNone;  // the op of the original function that it came from; kNone: the function's frame
  const char* name() const { return kPrimitiveNames[static_cast<size_t>(kind)]; }
  bool operator==(const PrimitiveOp&) const = default;
};

struct LoweredPort {
  std::string name;
  ValueId value;
  bool operator==(const LoweredPort&) const = default;
};

// What of the head leaves a function: nothing, or the chosen rows (at most kChosenRows, by a one-hot matrix), or all rows.
enum class HeadRows : uint8_t { none, chosen, all };
// ... as the largest logit and its index in each sub-range, or as the logits themselves.
enum class HeadForm : uint8_t { maxima, logits };

// How new K/V and frames get into the states.
enum class KvForm : uint8_t {
  place,    // states * keep + window * place: any rows through an input matrix, no run-time offset
  delta,    // they are outputs, and the host stores them; states are only read
  dynamic,  // K/V of all rows of the window as an aligned block at the input "offset"; frames as in place
};
const char* kv_form_name(KvForm form);

// One function over the shared weights.
struct FunctionSpec {
  Role role = Role::step;
  int32_t rows = 64;    // of the window
  int32_t bucket = 512;  // K/V columns
  HeadRows head = HeadRows::all;
  HeadForm form = HeadForm::maxima;
  bool operator==(const FunctionSpec&) const = default;
};
std::string function_name(const FunctionSpec& spec);  // "step_64_512_all_maxima"

struct LoweredFunction {
  FunctionSpec spec;
  std::vector<LoweredValue> values;
  std::vector<PrimitiveOp> ops;
  std::vector<LoweredPort> inputs, outputs;
  std::vector<std::string> origins;  // by op of the original function: "layer 3 attention"
  bool operator==(const LoweredFunction&) const = default;
};

inline constexpr int32_t kFrameSlots = 32;   // columns of a frames state: those of several sequences side by side
inline constexpr int32_t kChosenRows = 32;   // columns that the head's one-hot matrix chooses
inline constexpr int32_t kBlockRows = 32;    // alignment of dynamic writes
inline constexpr float kMasked = -40000.0f;  // added to the score of a key that a row does not see

struct LoweredProgram {
  std::string family;
  int32_t hidden = 0, vocabulary = 0;
  int32_t subrange = 0;      // entries of the vocabulary in each part of the head
  int32_t frame_count = 0;   // of the longest frames state: columns that a sequence takes of kFrameSlots
  KvForm kv = KvForm::place;
  std::vector<LoweredWeight> weights;
  std::vector<LoweredState> states;
  std::vector<LoweredFunction> functions;

  // The function made for `spec`, or kNone.
  int32_t find(const FunctionSpec& spec) const;
  bool operator==(const LoweredProgram&) const = default;
};

// Shape of a state as a function sees it.
Shape state_shape(const LoweredState& state, const FunctionSpec& spec);

// The program as text: one line a weight, a state, an op.
std::string dump(const LoweredProgram& program);

// Checks ids, single assignment, order of use, the shape and type of each value, ports, and that a state is written at most
// once and last. The status names function, op and value.
Status verify(const LoweredProgram& program);

}  // namespace espalier
