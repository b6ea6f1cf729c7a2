#include "units/cpu/schedule.h"

#include <algorithm>

namespace espalier::cpu {
namespace {

class Scheduler {
 public:
  Scheduler(const Function& f, int32_t segment, const PackedWeights& weights) : f_(f), weights_(weights) {
    out_.function = &f;
    out_.segment = segment;
    out_.memory = plan_memory(f, segment);
  }

  Schedule run() {
    for (size_t i = 0; i < f_.ops.size(); ++i) {
      if (out_.segment != kNone && f_.ops[i].segment != out_.segment) continue;
      i += append(i);
    }
    return std::move(out_);
  }

 private:
  // Appends op i; returns how many further ops it took in.
  size_t append(size_t i) {
    const Op& op = f_.ops[i];
    switch (op.kind()) {
      case OpKind::embed: row_op(RowOpKind::embed, op); break;
      case OpKind::rms_norm: row_op(RowOpKind::norm, op); break;
      case OpKind::qk_norm_rope: row_op(RowOpKind::rope, op); break;
      case OpKind::swiglu: row_op(RowOpKind::swiglu, op); break;
      case OpKind::add: row_op(RowOpKind::add, op); break;
      case OpKind::linear: return linear(i);
      case OpKind::short_conv: whole(Phase::Kind::conv, op); break;
      case OpKind::attention:
        row_op(RowOpKind::keep, op);
        if (op.in[0] != kNone) whole(Phase::Kind::attend, op);
        break;
      case OpKind::head: whole(Phase::Kind::head, op); break;
    }
    taps(op.out);
    return 0;
  }

  void row_op(RowOpKind kind, const Op& op) { rows().row_ops.push_back({kind, &op, kNone, kNone}); }

  Phase& rows() {
    if (out_.phases.empty() || out_.phases.back().kind != Phase::Kind::rows) out_.phases.push_back({Phase::Kind::rows, {}, {}, nullptr});
    return out_.phases.back();
  }

  void whole(Phase::Kind kind, const Op& op) { out_.phases.push_back({kind, {}, {}, &op}); }

  // Neighbouring linears that read values known before the first of them run side by side.
  size_t linear(size_t i) {
    LinearJob job{&f_.ops[i], f_.ops[i].out[0], kNone, kNone};
    const ValueId x = job.op->in[0];
    size_t taken = 0;
    if (const Op* add = fusable_add(i)) {
      job.residual = add->in[0] == job.out ? add->in[1] : add->in[0];
      job.out = add->out[0];
      taken = 1;
    }
    Phase* last = out_.phases.empty() ? nullptr : &out_.phases.back();
    const bool joins = last != nullptr && last->kind == Phase::Kind::linear && !writes(*last, x) && job.residual == kNone && !has_residual(*last);
    const PackedForm& form = weights_.entries[static_cast<size_t>(job.op->weights[0])].matrix.form;
    job.set = joins ? find_set(*last, x, form) : kNone;
    if (job.set == kNone) {
      job.set = static_cast<int32_t>(out_.sets.size());
      out_.sets.push_back({x, form});
      const RowOp quantise{RowOpKind::quantise, nullptr, x, job.set};
      if (joins)
        rows_before_last().row_ops.push_back(quantise);
      else
        rows().row_ops.push_back(quantise);
    }
    if (!joins) out_.phases.push_back({Phase::Kind::linear, {}, {}, nullptr});
    out_.phases.back().linears.push_back(job);
    if (taken == 1) taps(f_.ops[i + 1].out);
    else taps(f_.ops[i].out);
    return taken;
  }

  // A linear phase always has the rows phase of its first quantise right before it.
  Phase& rows_before_last() { return out_.phases[out_.phases.size() - 2]; }

  static bool writes(const Phase& phase, ValueId v) {
    return std::any_of(phase.linears.begin(), phase.linears.end(), [&](const LinearJob& j) { return j.out == v; });
  }
  static bool has_residual(const Phase& phase) {
    return std::any_of(phase.linears.begin(), phase.linears.end(), [](const LinearJob& j) { return j.residual != kNone; });
  }

  int32_t find_set(const Phase& phase, ValueId x, const PackedForm& form) const {
    for (const LinearJob& j : phase.linears) {
      const QuantisedSet& set = out_.sets[static_cast<size_t>(j.set)];
      if (set.value == x && set.form.group == form.group && set.form.hadamard == form.hadamard) return j.set;
    }
    return kNone;
  }

  // The op right behind linear i if it adds something else to its only result.
  const Op* fusable_add(size_t i) const {
    if (i + 1 >= f_.ops.size()) return nullptr;
    const Op &linear = f_.ops[i], &add = f_.ops[i + 1];
    const ValueId y = linear.out[0];
    if (add.kind() != OpKind::add || add.segment != linear.segment || (add.in[0] == y) == (add.in[1] == y)) return nullptr;
    for (size_t j = i + 2; j < f_.ops.size(); ++j)
      if (std::find(f_.ops[j].in.begin(), f_.ops[j].in.end(), y) != f_.ops[j].in.end()) return nullptr;
    for (const Port& out : f_.outputs)
      if (out.value == y) return nullptr;
    return &add;
  }

  void taps(const std::vector<ValueId>& written) {
    for (size_t p = 0; p < f_.outputs.size(); ++p) {
      const Port& port = f_.outputs[p];
      if (port.name.starts_with("edge.") || std::find(written.begin(), written.end(), port.value) == written.end()) continue;
      rows().row_ops.push_back({RowOpKind::tap, nullptr, port.value, static_cast<int32_t>(p)});
    }
  }

  const Function& f_;
  const PackedWeights& weights_;
  Schedule out_;
};

}  // namespace

Schedule make_schedule(const Function& function, int32_t segment, const PackedWeights& weights) {
  return Scheduler(function, segment, weights).run();
}

}  // namespace espalier::cpu
