// The attention core over bucket and window, and the three forms in which new K/V get into the states. Internal to lower.cc.
#pragma once

#include "lower/lower.h"
#include "lower/lower_builder.h"

namespace espalier::lowering {

// Index of the lowered state made from `source`: its frames ("."), or K ("k"), or V ("v").
int32_t state_index(const LoweredProgram& program, StateId source, const char* part);

class Attention {
 public:
  Attention(PrimitiveBuilder& builder, const LoweredProgram& program, const LowerOptions& options, const FunctionSpec& spec)
      : b_(builder), p_(program), options_(options), spec_(spec) {}

  // q, k, v (1, heads * hd, 1, W), q already scaled; gives (1, n_heads * hd, 1, W).
  ValueId attend(const AttentionAttr& a, StateId state, ValueId q, ValueId k, ValueId v);
  void keep(StateId state, ValueId k, ValueId v);

 private:
  ValueId keys(int32_t state, ValueId rows);
  ValueId whole(ValueId scores_of, ValueId keys, ValueId values, ValueId mask);
  ValueId in_chunks(ValueId q, ValueId keys, ValueId values_t, ValueId mask);
  void keep_one(int32_t state, ValueId rows);

  PrimitiveBuilder& b_;
  const LoweredProgram& p_;
  const LowerOptions& options_;
  const FunctionSpec& spec_;
};

}  // namespace espalier::lowering
