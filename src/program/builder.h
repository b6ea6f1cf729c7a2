// Writes programs: each method appends one op and returns its value. Families use nothing else to describe a model.
//
// Misuse (a value of another function, a wrong width) is found by verify() in finish(), not here.
#pragma once

#include <string>
#include <string_view>

#include "program/program.h"

namespace espalier {

class ProgramBuilder {
 public:
  ProgramBuilder(std::string family, int32_t layer_count, int32_t hidden, int32_t vocabulary);

  // Declarations; the same name twice gives the same id.
  WeightId matrix(const std::string& name, int32_t rows, int32_t cols, const std::string& owner = {});
  WeightId vector(const std::string& name, int32_t length);
  WeightId taps(const std::string& name, int32_t channels, int32_t kernel);
  StateId kv_state(int32_t layer, int32_t n_kv_heads, int32_t head_dim);
  StateId frames_state(int32_t layer, int32_t count, int32_t width);
  int32_t rope(const RopeSpec& spec);

  // Starts a function; ops that follow belong to it and to the layer set last.
  void function(Role role);
  void layer(int32_t index) { layer_ = index; }

  ValueId input(const std::string& name, int32_t width);
  ValueId embed(WeightId table);
  ValueId rms_norm(ValueId x, WeightId w, float eps);
  ValueId linear(ValueId x, WeightId w, WeightId bias = kNone);
  ValueId short_conv(ValueId p, WeightId taps, WeightId bias, StateId frames, int32_t kernel, bool centred);
  struct QK {
    ValueId q, k;
  };
  QK qk_norm_rope(QK in, WeightId q_norm, WeightId k_norm, const QkNormRopeAttr& attr);
  ValueId attention(QK qk, ValueId v, StateId kv, const AttentionAttr& attr);
  ValueId swiglu(ValueId gate, ValueId up);
  ValueId add(ValueId a, ValueId b);
  void head(ValueId x, WeightId table);
  void output(const std::string& name, ValueId value);

  // The program, verified.
  Result<Program> finish() &&;

 private:
  Function& current() { return program_.functions.back(); }
  ValueId value(std::string_view stem, int32_t width);
  ValueId push(OpAttr attr, std::vector<ValueId> in, std::vector<WeightId> weights, std::string_view stem, int32_t width,
               StateId state = kNone);
  int32_t width_of(ValueId v) const;
  WeightId declare(WeightDecl decl);

  Program program_;
  int32_t layer_ = kNone;
};

}  // namespace espalier
