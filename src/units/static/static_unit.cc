#include "units/static/static_unit.h"

#include <algorithm>

#include "units/static/static_model.h"

namespace espalier {
namespace {

using static_unit::StaticModel;

class StaticUnit : public Unit {
 public:
  StaticUnit(StaticOptions options, std::string name, MakeBackend make_backend, bool rounds)
      : options_(std::move(options)), name_(std::move(name)), make_backend_(std::move(make_backend)), rounds_(rounds) {}

  UnitInfo describe() const override {
    std::string buckets;
    for (int32_t b : options_.buckets) buckets += (buckets.empty() ? "" : ", ") + std::to_string(b);
    return {name_, "", "fixed windows of " + std::to_string(options_.rows) + " rows, K/V buckets " + buckets + ", written by " + kv_form_name(options_.kv)};
  }

  Status accepts(const Program& program) const override {
    StaticOptions one = options_;
    one.buckets.resize(1);
    const Result<LoweredProgram> lowered = lower(program, static_functions(program, one));
    return lowered.ok() ? Status() : lowered.status();
  }

  Result<std::unique_ptr<Model>> compile(const Program& program, const WeightSet& weights) override {
    return StaticModel::make(program, weights, options_, make_backend_, rounds_);
  }

 private:
  StaticOptions options_;
  std::string name_;
  MakeBackend make_backend_;
  bool rounds_;
};

}  // namespace

Status check_static_options(const StaticOptions& o) {
  if (o.rows < 1 || o.rows > 1024) return invalid("static unit: a window of " + std::to_string(o.rows) + " rows, expected 1 to 1024", "rows");
  if (o.kv == KvForm::dynamic && (o.rows < 2 * kBlockRows || o.rows % kBlockRows != 0))
    return invalid("static unit: blocks of " + std::to_string(kBlockRows) + " rows need a window of at least 64 rows, a multiple of 32; found " + std::to_string(o.rows), "rows");
  if (o.buckets.empty() || o.buckets.size() > 16) return invalid("static unit: " + std::to_string(o.buckets.size()) + " buckets, expected 1 to 16", "buckets");
  for (size_t i = 0; i < o.buckets.size(); ++i)
    if (o.buckets[i] < o.rows || o.buckets[i] > 1 << 20 || (i > 0 && o.buckets[i] <= o.buckets[i - 1]))
      return invalid("static unit: bucket " + std::to_string(o.buckets[i]) + ": expected ascending numbers from " + std::to_string(o.rows) + " to 1048576", "buckets");
  if (o.kv == KvForm::dynamic && o.buckets.back() < 2 * o.rows) return invalid("static unit: the largest bucket, " + std::to_string(o.buckets.back()) + ", has no room for a block behind another window", "buckets");
  return {};
}

Result<std::unique_ptr<Unit>> make_static_unit(const StaticOptions& options) {
  return make_static_unit(options, "static", evaluator_backend(options.evaluate), options.evaluate.arithmetic != Arithmetic::f32);
}

Result<std::unique_ptr<Unit>> make_static_unit(const StaticOptions& options, std::string name, MakeBackend make_backend, bool rounds) {
  ESPALIER_TRY(check_static_options(options));
  return std::unique_ptr<Unit>(std::make_unique<StaticUnit>(options, std::move(name), std::move(make_backend), rounds));
}

std::string static_range_report(const Model& model) {
  const auto* m = dynamic_cast<const StaticModel*>(&model);
  return m == nullptr ? std::string() : m->backend().range_report();
}

const LoweredProgram* static_lowered(const Model& model) {
  const auto* m = dynamic_cast<const StaticModel*>(&model);
  return m == nullptr ? nullptr : &m->lowered();
}

}  // namespace espalier
