// The CPU unit: packed int8 and int4 weights, dynamic int8 activations, fp16 or int8 K/V in pages, canonical arithmetic.
//
// Numerics   rules 2: a row's bits depend on the program, the packed weights, the K/V type and the row's own history, on
//            nothing else: not on width, threads, batch, instruction set.
// Memory     the packed weights (mapped or owned), 2 MiB-friendly pages of 128 positions, scratch that grows with the widest
//            call and is kept.
#pragma once

#include <memory>
#include <vector>

#include "kernels/attention/kv_page.h"
#include "kernels/isa.h"
#include "units/cpu/pack_weights.h"
#include "units/unit.h"

namespace espalier {

struct CpuOptions {
  uint32_t threads = 0;  // 0: what affinity and the cgroup allow
  KvType kv = KvType::f16;
  PackOptions pack;      // for compile(): how a WeightSet is packed
};

class CpuUnit : public Unit {
 public:
  // Refuses an ESPALIER_ISA that this machine lacks.
  static Result<std::unique_ptr<CpuUnit>> make(const CpuOptions& options);

  UnitInfo describe() const override;
  Status accepts(const Program& program) const override;
  // Packs, then compile_packed.
  Result<std::unique_ptr<Model>> compile(const Program& program, const WeightSet& weights) override;
  // The weights are shared with the caller's copy; they may lie in a mapped file.
  Result<std::unique_ptr<Model>> compile_packed(const Program& program, PackedWeights weights);

  // The weights of a model that a CPU unit compiled, for a program that shares some of them; null for another unit's model.
  static const PackedWeights* packed_weights(const Model& model);

  uint32_t threads() const;
  Isa isa() const { return isa_; }

 private:
  CpuUnit(const CpuOptions& options, Isa isa);
  CpuOptions options_;
  Isa isa_;
  std::shared_ptr<class ThreadTeam> team_;
};

}  // namespace espalier
