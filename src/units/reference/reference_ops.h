// One call on the reference unit: runs the ops of a function (or of one segment) in order.
#pragma once

#include <vector>

#include "kernels/rope/rope_table.h"
#include "units/reference/reference_state.h"

namespace espalier::reference {

using Tensors = std::vector<std::vector<float>>;  // by WeightId, fp32

class Executor {
 public:
  Executor(const Program& program, const Tensors& tensors, const Call& call, int threads);
  // Fills Call::out and the pending rows of the states. Fails on a logit that is not finite.
  Status run();

 private:
  void load_inputs();
  Status run_op(const Op& op);
  void embed(const Op& op);
  void rms_norm(const Op& op);
  void linear(const Op& op);
  void short_conv(const Op& op);
  void qk_norm_rope(const Op& op);
  void attention(const Op& op);
  void swiglu(const Op& op);
  void add(const Op& op);
  Status head(const Op& op);

  void norm_and_rotate(float* x, int32_t heads, const QkNormRopeAttr& a, WeightId norm, int32_t position, float scale) const;
  void attend(const Op& op, size_t row, const std::vector<int32_t>& visible) const;
  std::vector<int32_t> visible_rows(const AttentionAttr& a, size_t row) const;
  Status emit_logits(size_t row, const std::vector<float>& logits);
  void copy_taps(const Op& op);
  void copy_edges();

  size_t rows() const { return call_.rows.size(); }
  int32_t width(ValueId v) const { return function_.values[static_cast<size_t>(v)].width; }
  float* at(ValueId v, size_t row) const { return const_cast<float*>(values_[static_cast<size_t>(v)].data()) + row * static_cast<size_t>(width(v)); }
  const float* weight(WeightId w) const { return w == kNone ? nullptr : tensors_[static_cast<size_t>(w)].data(); }
  ReferenceState& state(size_t row) const { return *static_cast<ReferenceState*>(call_.states[static_cast<size_t>(call_.rows[row].sequence)]); }

  const Program& program_;
  const Tensors& tensors_;
  const Call& call_;
  const Function& function_;
  int threads_;
  std::vector<RopeTable> ropes_;
  std::vector<std::vector<float>> values_;  // by ValueId: (rows, width)
  std::vector<int32_t> entry_;              // index of each call row among its state's pending rows
};

}  // namespace espalier::reference
