// A call of a model: a list of rows. One code path for prefill, decoding, trees, batches and mixtures of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/top_entry.h"
#include "program/program.h"

namespace espalier {

class State;

inline constexpr int32_t kNoToken = -1;  // the function takes features instead
inline constexpr int32_t kState = -1;    // parent: the last row that the state holds (none if it is empty)

enum Want : uint32_t {
  kWantArgmax = 1,
  kWantLogits = 2,
  kWantTopK = 4,
  kWantLse = 8,
  kWantTaps = 16,
};

struct Row {
  int32_t token;     // id, or kNoToken
  int32_t sequence;  // index into Call::states
  int32_t position;  // RoPE position
  int32_t parent;    // an earlier row of this call and sequence, or kState
  uint32_t wants;    // Want bits
};

struct NamedTensor {
  std::string_view name;
  const float* data;  // (rows of the call, width), row-major, borrowed until wait
  int32_t width;
};

struct NamedOutput {
  std::string name;         // set by the caller for taps; edges of a segment are added by the unit
  std::vector<float> data;  // (rows that ask, width); edges: (all rows, width)
};

// The caller's, reused between calls. Each list has one entry for each row that asks, in row order.
struct Outputs {
  std::vector<int32_t> argmax;  // largest logit, smallest id
  std::vector<float> logits;    // (rows that ask, vocabulary)
  std::vector<TopEntry> top;    // (rows that ask, top_k): logit descending, id ascending
  std::vector<float> lse;       // log of the sum of exp(logit)
  std::vector<NamedOutput> taps;   // the caller fills in the names that it wants ("layer.2")
  std::vector<NamedOutput> edges;  // outputs of a segment

  // Empties every list; the taps keep their names.
  void clear();
};

struct FunctionId {
  Role role = Role::step;
  int32_t segment = kNone;  // kNone: the whole function
  bool operator==(const FunctionId&) const = default;
};

struct Call {
  FunctionId function;
  std::span<const Row> rows;
  std::span<State* const> states;  // borrowed; one for each sequence, all of the same model
  std::span<const NamedTensor> inputs;
  uint32_t top_k = 0;
  Outputs* out = nullptr;
};

// Checks a call against a program before anything runs: parents before children and of the same sequence, tokens within
// the vocabulary, positions not negative and one above the parent's for decoder functions, inputs present with the right
// widths, known tap names. O(rows).
Status check_call(const Program& program, const Call& call);

}  // namespace espalier
