#include "units/cpu/cpu_unit.h"

#include "base/thread_team.h"
#include "units/cpu/cpu_model.h"

namespace espalier {
namespace {

Status refuse(const Function& f, size_t index, const std::string& why) {
  return unsupported(std::string("the CPU unit cannot run op ") + std::to_string(index) + " " + f.ops[index].name() + " of function " +
                     role_name(f.role) + ": " + why);
}

Status accepts_op(const Function& f, size_t i) {
  const Op& op = f.ops[i];
  if (const auto* a = std::get_if<ShortConvAttr>(&op.attr)) {
    if (a->centred) return refuse(f, i, "centred convolutions are not implemented");
    if (a->kernel > static_cast<int32_t>(kShortConvTapsMax)) return refuse(f, i, "more than " + std::to_string(kShortConvTapsMax) + " taps");
  }
  if (const auto* a = std::get_if<QkNormRopeAttr>(&op.attr); a != nullptr && a->head_dim > static_cast<int32_t>(kHeadDimMax))
    return refuse(f, i, "heads of more than " + std::to_string(kHeadDimMax));
  if (const auto* a = std::get_if<AttentionAttr>(&op.attr)) {
    if (a->head_dim > static_cast<int32_t>(kHeadDimMax)) return refuse(f, i, "heads of more than " + std::to_string(kHeadDimMax));
    if (op.state == kNone) return refuse(f, i, "attention without a K/V state is not implemented");
  }
  return {};
}

}  // namespace

CpuUnit::CpuUnit(const CpuOptions& options, Isa isa) : options_(options), isa_(isa), team_(std::make_shared<ThreadTeam>(options.threads)) {}

Result<std::unique_ptr<CpuUnit>> CpuUnit::make(const CpuOptions& options) {
  ESPALIER_ASSIGN(const Isa isa, chosen_isa());
  return std::unique_ptr<CpuUnit>(new CpuUnit(options, isa));
}

uint32_t CpuUnit::threads() const { return team_->size(); }

UnitInfo CpuUnit::describe() const {
  return {"cpu", isa_name(isa_), std::string(isa_name(isa_)) + ", " + std::to_string(team_->size()) + (team_->size() == 1 ? " thread" : " threads")};
}

Status CpuUnit::accepts(const Program& program) const {
  ESPALIER_TRY(verify(program));
  for (const Function& f : program.functions)
    for (size_t i = 0; i < f.ops.size(); ++i) ESPALIER_TRY(accepts_op(f, i));
  return {};
}

Result<std::unique_ptr<Model>> CpuUnit::compile(const Program& program, const WeightSet& weights) {
  ESPALIER_TRY(accepts(program));
  ESPALIER_ASSIGN(PackedWeights packed, pack_weights(program, weights, options_.pack, *team_));
  return compile_packed(program, std::move(packed));
}

Result<std::unique_ptr<Model>> CpuUnit::compile_packed(const Program& program, PackedWeights weights) {
  ESPALIER_TRY(accepts(program));
  if (weights.entries.size() != program.weights.size())
    return invalid("expected " + std::to_string(program.weights.size()) + " packed weights, found " + std::to_string(weights.entries.size()));
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const WeightDecl& decl = program.weights[i];
    const PackedWeights::Entry& entry = weights.entries[i];
    const bool matrix = decl.kind == WeightDecl::Kind::matrix;
    const bool fits = matrix ? entry.matrix.data != nullptr && entry.matrix.form.rows == static_cast<uint32_t>(decl.rows) && entry.matrix.form.cols == static_cast<uint32_t>(decl.cols)
                             : entry.vector.size() == static_cast<size_t>(decl.rows) * static_cast<size_t>(decl.cols);
    if (!fits) return invalid("packed weight " + decl.name + " is missing or has another shape", decl.name);
  }
  return std::unique_ptr<Model>(std::make_unique<cpu::CpuModel>(program, std::move(weights), options_.kv, isa_, team_));
}

const PackedWeights* CpuUnit::packed_weights(const Model& model) {
  const auto* mine = dynamic_cast<const cpu::CpuModel*>(&model);
  return mine == nullptr ? nullptr : &mine->weights();
}

}  // namespace espalier
