// Something that runs programs. A unit compiles all functions of a program over one weight set into a model; a model makes
// states; calls run rows against states.
//
// Threads    a Unit and a Model may be used from any thread, one call at a time for each model; a State by one thread at a
//            time. Different states may be in one call.
// Lifetime   a Model must outlive its States; a Unit its Models.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/status.h"
#include "program/call.h"
#include "program/program.h"
#include "program/weight_set.h"

namespace espalier {

// What a state holds, in the one layout that all units read and write (hand-off, save and load, comparison).
struct NeutralState {
  uint64_t program_hash = 0;
  std::vector<int32_t> tokens;  // ids of the held rows, at positions 0, 1, ...; their number is the length
  struct Tensor {
    std::string name;         // StateDecl name with ".k", ".v" or nothing behind it
    std::string dtype;        // how the exporting unit held it: "f32", "f16", "i8"
    std::vector<float> data;  // k, v: (kv head, position, head_dim), RoPE applied to k; frames: (count, width)
  };
  std::vector<Tensor> tensors;  // in the order of Program::states
};
// Bytes with version and checksum, and back. Damaged bytes are refused.
std::vector<std::byte> serialize(const NeutralState& state);
Result<NeutralState> deserialize(std::span<const std::byte> bytes);
// Hash, names and sizes of a neutral state against a program. K/V of a state that no segment has run may hold no rows.
Status check_neutral(const Program& program, const NeutralState& state);

// Held rows stand at positions 0 to length() - 1, so a row whose parent is kState has position length().
// The rows of the last call are pending until commit keeps a path of them; a new call drops them, unless it runs a later
// segment of the same function with the same number of rows.
class State {
 public:
  virtual ~State() = default;
  virtual int32_t length() const = 0;          // held rows
  virtual std::span<const int32_t> tokens() const = 0;  // ids of the held rows
  virtual int32_t pending() const = 0;         // rows of this state in the last call
  // Keeps a path of the pending rows: indices into the last call's row list, the first a child of the state, each the
  // parent of the next. Empty keeps nothing. Anything else is refused and changes nothing.
  virtual Status commit(std::span<const int32_t> rows) = 0;
  // An independent state with the same held rows; shares memory where the unit can. Pending rows are not copied.
  virtual std::unique_ptr<State> fork() const = 0;
  // Makes this state hold what `other` holds (a fork kept as a snapshot). Both belong to the same model.
  virtual Status restore(const State& other) = 0;
  virtual NeutralState export_neutral() const = 0;
  // Replaces what is held. Refused: another program's hash, wrong shapes. `note` (may be null) gets a sentence when values
  // had to be rounded to this state's type.
  virtual Status import_neutral(const NeutralState& neutral, std::string* note) = 0;
};

struct CallStats {
  int64_t t0_ns = 0, t1_ns = 0;  // monotonic clock
  int32_t rows = 0;
  int64_t linear_ns = 0;  // inside matrix products, where the unit measures it
};

using Ticket = uint64_t;

class Model {
 public:
  virtual ~Model() = default;
  virtual const Program& program() const = 0;
  virtual Result<std::unique_ptr<State>> make_state() = 0;
  // Starts a call; everything that it borrows must live until wait. A bad call is refused here and leaves states alone.
  virtual Result<Ticket> submit(const Call& call) = 0;
  // Ends a call. A non-finite logit is an error that names the position (rules.md 2.11).
  virtual Result<CallStats> wait(Ticket ticket) = 0;
  Result<CallStats> run(const Call& call);
};

struct UnitInfo {
  std::string name;     // "cpu", "reference"
  std::string kernels;  // "avx512_vnni", ...; empty where it has no variants
  std::string detail;   // one line for people
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual UnitInfo describe() const = 0;
  // Ok, or unsupported naming the first op that this unit cannot run, and why.
  virtual Status accepts(const Program& program) const = 0;
  virtual Result<std::unique_ptr<Model>> compile(const Program& program, const WeightSet& weights) = 0;
};

}  // namespace espalier
