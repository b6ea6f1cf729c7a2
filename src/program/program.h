// A model as data: named weights, states, functions made of about a dozen ops.
//
// Goals      one description that every unit runs, that can be dumped, compared, verified and cut before anything runs.
// Non-goals  no numbers live here: weights are bound by name when a unit compiles the program.
//
// A value is a matrix (rows of the call, width) of fp32. Each value is written by exactly one op. Ops stand in execution
// order. The op's definition in plain words is in ops.h; its reference is src/units/reference.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "espalier/status.h"

namespace espalier {

using ValueId = int32_t;
using WeightId = int32_t;
using StateId = int32_t;
inline constexpr int32_t kNone = -1;

// ---- weights and states

struct WeightDecl {
  enum class Kind {
    matrix,  // (outputs, inputs), in whatever form the unit keeps it
    vector,  // (1, length) fp32
    taps,    // (channels, kernel) fp32: the small kernel of a convolution
  };
  std::string name;   // the checkpoint's canonical name (Hugging Face spelling)
  Kind kind;
  int32_t rows;
  int32_t cols;
  // "target": the weight of that name of the target model's program (a drafter's embedding and head). Else empty.
  std::string owner;
  bool operator==(const WeightDecl&) const = default;
};

struct StateDecl {
  enum class Kind { kv, frames };
  std::string name;   // "layer.5.kv", "layer.0.frames"
  Kind kind;
  int32_t layer;
  int32_t n_kv_heads = 0, head_dim = 0;  // kv: K and V of (n_kv_heads, head_dim) for each held row
  int32_t frame_count = 0, width = 0;    // frames: the last frame_count rows of B * x, (frame_count, width)
  bool operator==(const StateDecl&) const = default;
};

struct RopeSpec {
  double theta = 0;
  int32_t head_dim = 0;
  bool interleaved = false;  // pairs (2i, 2i+1); else (i, i + head_dim/2)
  // Llama 3 scaling; factor 0: none.
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  double original_context = 0;
  std::vector<float> divisors;  // (head_dim/2) by which the frequencies are divided; empty: none
  bool operator==(const RopeSpec&) const = default;
};

// ---- ops

enum class MaskKind { ancestors, group };  // a row sees: held rows and its ancestors | held rows and all rows of its sequence

struct EmbedAttr { bool operator==(const EmbedAttr&) const = default; };
struct RmsNormAttr { float eps; bool operator==(const RmsNormAttr&) const = default; };
struct LinearAttr { bool operator==(const LinearAttr&) const = default; };
struct ShortConvAttr { int32_t kernel; bool centred; bool operator==(const ShortConvAttr&) const = default; };
struct QkNormRopeAttr {
  int32_t n_heads, n_kv_heads, head_dim;
  float eps;      // of the norms, where there are weights
  float q_scale;  // applied to q after RoPE
  int32_t rope;   // index into Program::ropes
  bool operator==(const QkNormRopeAttr&) const = default;
};
struct AttentionAttr {
  int32_t n_heads, n_kv_heads, head_dim;
  MaskKind mask;
  bool keep;  // k and v of the rows become pending
  bool operator==(const AttentionAttr&) const = default;
};
struct SwigluAttr { bool operator==(const SwigluAttr&) const = default; };
struct AddAttr { bool operator==(const AddAttr&) const = default; };
struct HeadAttr { bool operator==(const HeadAttr&) const = default; };

// The order is that of OpKind: Op::kind() is the index.
using OpAttr = std::variant<EmbedAttr, RmsNormAttr, LinearAttr, ShortConvAttr, QkNormRopeAttr, AttentionAttr, SwigluAttr,
                            AddAttr, HeadAttr>;
enum class OpKind { embed, rms_norm, linear, short_conv, qk_norm_rope, attention, swiglu, add, head };
inline constexpr std::array<const char*, std::variant_size_v<OpAttr>> kOpNames = {
    "embed", "rms_norm", "linear", "short_conv", "qk_norm_rope", "attention", "swiglu", "add", "head"};

struct Op {
  OpAttr attr;
  int32_t layer = kNone;    // the layer that it belongs to; kNone before the first and after the last
  int32_t segment = 0;      // which segment of a cut function runs it
  std::vector<ValueId> in;  // kNone where an optional input is absent
  std::vector<ValueId> out;
  std::vector<WeightId> weights;  // kNone where an optional weight is absent
  StateId state = kNone;

  OpKind kind() const { return static_cast<OpKind>(attr.index()); }
  const char* name() const { return kOpNames[attr.index()]; }
  bool operator==(const Op&) const = default;
};

// ---- functions and programs

struct ValueDecl {
  std::string name;
  int32_t width;
  bool operator==(const ValueDecl&) const = default;
};

// A value with a name that callers know: a feature input, a tap, an edge between two segments.
struct Port {
  std::string name;
  ValueId value;
  int32_t segment;  // the segment that reads (input) or writes (output) it
  bool operator==(const Port&) const = default;
};

// What a function is for: rows of a decoder; K/V from features (drafter); a drafter's block; an encoder's text; the biases that a
// drafter's Markov head gives for a direction.
enum class Role : uint8_t { step, context, block, encode, markov };
const char* role_name(Role role);

struct Function {
  Role role;
  std::vector<ValueDecl> values;
  std::vector<Op> ops;
  std::vector<Port> inputs;   // features, and the edges into a segment after a cut
  std::vector<Port> outputs;  // taps ("layer.N": the residual stream after layer N), and the edges out of a segment
  int32_t segment_count = 1;
  bool operator==(const Function&) const = default;
};

struct Program {
  std::string family;      // for people and for the identity of artifacts
  int32_t layer_count = 0;
  int32_t hidden = 0;
  int32_t vocabulary = 0;  // rows of the head; 0 where there is none
  std::vector<WeightDecl> weights;
  std::vector<StateDecl> states;
  std::vector<RopeSpec> ropes;
  std::vector<Function> functions;

  // The function of that role, or nullptr.
  const Function* find(Role role) const;
  bool operator==(const Program&) const = default;
};

// A hash of everything above (FNV-1a over the dump and exact numbers): the identity that states and artifacts carry.
uint64_t program_hash(const Program& program);

// The program as text: one line a weight, a state, an op. Stable, made for reading and for diffs.
std::string dump(const Program& program);

// Checks shapes, ids, single assignment, order of use, states and segments. The status names function, op and value.
Status verify(const Program& program);

}  // namespace espalier
