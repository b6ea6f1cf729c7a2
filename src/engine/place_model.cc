#include "engine/place_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/thread_team.h"
#include "convert/cache.h"
#include "convert/rounded_weights.h"
#include "engine/export_model.h"
#include "engine/free_memory.h"
#include "units/coreai/coreai_backend.h"
#include "units/cpu/cpu_unit.h"
#include "units/reference/reference.h"
#include "units/static/static_unit.h"

namespace espalier {
namespace {

Status fits(uint64_t bytes, const std::string& what) {
  const auto left = free_memory();
  if (!left || bytes <= *left) return {};
  return {Code::out_of_memory, what + " need " + gigabytes(bytes) + " of memory, and " + gigabytes(*left) + " are free"};
}

// Bytes that the matrices will take, known before anything is packed.
Result<uint64_t> packed_size(const Program& program, const WeightSet& weights, WeightsForm form) {
  std::set<WeightId> tables;
  for (const Function& f : program.functions)
    for (const Op& op : f.ops)
      if (op.kind() == OpKind::embed || op.kind() == OpKind::head) tables.insert(op.weights.begin(), op.weights.end());
  uint64_t bytes = 0;
  for (size_t i = 0; i < weights.entries.size(); ++i) {
    const auto& matrix = weights.entries[i].matrix;
    if (!matrix) continue;
    ESPALIER_ASSIGN(const PackedForm packed, packed_form(*matrix, form, tables.count(static_cast<WeightId>(i)) > 0));
    bytes += packed_bytes(packed);
  }
  return bytes;
}

// What a plan owns itself, before it is packed.
Status check_memory(const std::string& name, const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form) {
  if (checkpoint.kind() == CheckpointKind::packed) {
    uint64_t bytes = 0;
    for (const SourceFile& f : checkpoint.files()) bytes += f.size;
    return fits(bytes, name + ": its weights");
  }
  ESPALIER_ASSIGN(const WeightSet weights, bind_weights(plan, checkpoint));
  ESPALIER_ASSIGN(const uint64_t bytes, packed_size(plan.program, weights, form));
  return fits(bytes, name + ": its weights");
}

// The form that most of the bytes have.
std::string main_form(const PackedWeights& weights) {
  std::map<std::string, uint64_t> bytes;
  for (const auto& e : weights.entries)
    if (e.matrix.data != nullptr) bytes[form_name(e.matrix.form)] += packed_bytes(e.matrix.form);
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "none" : most->first;
}

Status place_on_cpu(const OpenOptions& options, Engine::Impl& engine) {
  CpuOptions cpu;
  ESPALIER_ASSIGN(cpu.pack.form, weights_form(options.weights));
  ESPALIER_ASSIGN(cpu.kv, kv_type(options.kv));
  cpu.threads = options.threads;
  ESPALIER_ASSIGN(std::unique_ptr<CpuUnit> unit, CpuUnit::make(cpu));
  ESPALIER_TRY(unit->accepts(engine.plan.program));
  ESPALIER_TRY(check_memory(options.model, engine.checkpoint, engine.plan, cpu.pack.form));
  ThreadTeam team(options.threads);
  ESPALIER_ASSIGN(PackedModel packed, packed_model(engine.checkpoint, engine.plan, cpu.pack.form, team, options.on_progress, options.cache));
  for (std::string& n : packed.notices) engine.info.notices.push_back(std::move(n));
  engine.info.weights = main_form(packed.weights);
  engine.info.weight_bytes = packed.weights.matrix_bytes();
  ESPALIER_ASSIGN(engine.model, unit->compile_packed(engine.plan.program, std::move(packed.weights)));
  engine.info.threads = unit->threads();
  engine.info.kernels = unit->describe().kernels;
  engine.info.kv = options.kv;
  engine.unit = std::move(unit);
  return {};
}

Status place_on_reference(const OpenOptions& options, Engine::Impl& engine) {
  ESPALIER_ASSIGN([[maybe_unused]] const WeightsForm form, weights_form(options.weights));
  ESPALIER_ASSIGN([[maybe_unused]] const KvType kv, kv_type(options.kv));
  ESPALIER_ASSIGN(const WeightSet weights, float_weights(engine.plan, engine.checkpoint));
  uint64_t bytes = 0;
  for (const WeightDecl& w : engine.plan.program.weights) bytes += uint64_t{4} * static_cast<uint64_t>(w.rows) * static_cast<uint64_t>(w.cols);
  ESPALIER_TRY(fits(bytes, options.model + ": its weights in fp32"));
  const uint32_t threads = options.threads == 0 ? default_thread_count() : options.threads;
  engine.unit = make_reference_unit(static_cast<int>(threads));
  ESPALIER_ASSIGN(engine.model, engine.unit->compile(engine.plan.program, weights));
  engine.info.threads = threads;
  engine.info.kernels = "portable";
  engine.info.weights = "fp32";
  engine.info.kv = "fp32";
  engine.info.weight_bytes = bytes;
  return {};
}

Result<std::unique_ptr<Model>> drafter_on_cpu(const OpenOptions& options, Engine::Impl& engine, const Checkpoint& checkpoint, const DrafterPlan& plan) {
  auto& unit = static_cast<CpuUnit&>(*engine.unit);
  ESPALIER_TRY(unit.accepts(plan.model.program));
  ESPALIER_ASSIGN(const WeightsForm form, weights_form(options.weights));
  ESPALIER_TRY(check_memory("the drafter", checkpoint, plan.model, form == WeightsForm::file ? WeightsForm::automatic : form));
  ThreadTeam team(options.threads);
  ESPALIER_ASSIGN(PackedModel packed, packed_drafter(checkpoint, plan, engine.plan.program, *CpuUnit::packed_weights(*engine.model), form, team,
                                                     options.on_progress, options.cache));
  for (std::string& n : packed.notices) engine.info.notices.push_back(std::move(n));
  return unit.compile_packed(plan.model.program, std::move(packed.weights));
}

Result<std::unique_ptr<Model>> drafter_from_floats(const OpenOptions&, Engine::Impl& engine, const Checkpoint& checkpoint, const DrafterPlan& plan) {
  ESPALIER_ASSIGN(const WeightSet target, float_weights(engine.plan, engine.checkpoint));
  ESPALIER_ASSIGN(const WeightSet weights, bind_drafter_weights(plan, checkpoint, engine.plan.program, target));
  return engine.unit->compile(plan.model.program, weights);
}

// The given buckets, or those of the defaults that the context needs. A context beyond the largest ends there, and says so.
Result<StaticOptions> static_options(const OpenOptions& options, Engine::Impl& engine) {
  StaticOptions o;
  o.evaluate.threads = options.threads == 0 ? default_thread_count() : options.threads;
  if (!rounded_form(options.weights)) {
    ESPALIER_ASSIGN(const WeightsForm form, weights_form(options.weights));
    const bool holds_int8 = engine.checkpoint.kind() == CheckpointKind::npu;
    if (form == WeightsForm::int8 || holds_int8) o.weights = ScalarType::i8;
  }
  if (options.activations != "fp16" && options.activations != "int8") return invalid("activations: expected fp16 or int8, found \"" + options.activations + "\"", "activations");
  o.evaluate.int8_inputs = options.activations == "int8";
  ESPALIER_ASSIGN(const KvType kv, kv_type(options.kv));
  if (kv != KvType::f16) return unsupported("kv: the static unit keeps fp16, found \"" + options.kv + "\"", "kv");
  if (!options.buckets.empty()) {
    ESPALIER_ASSIGN(o.buckets, bucket_list(options.buckets));
  } else {
    while (o.buckets.size() > 1 && o.buckets[o.buckets.size() - 2] >= engine.info.context) o.buckets.pop_back();
  }
  const int64_t largest = o.buckets.empty() ? 0 : o.buckets.back();
  if (largest == 0 || engine.info.context <= largest) return o;
  const std::string sentence = "context: " + std::to_string(engine.info.context) + " tokens, and the static unit's largest bucket takes " + std::to_string(largest);
  if (options.context != 0) return invalid(sentence + "; shorten the context or give larger buckets", "context");
  engine.info.notices.push_back(sentence + ": texts end there (--buckets sets it)");
  engine.info.context = largest;
  return o;
}

// `kernels`: what runs the functions.
Status place_static(const OpenOptions& options, Engine::Impl& engine, const StaticOptions& chosen, std::unique_ptr<Unit> unit, const char* kernels) {
  ESPALIER_ASSIGN(WeightSet weights, float_weights(engine.plan, engine.checkpoint));
  const std::optional<RoundedForm> rounded = rounded_form(options.weights);
  uint64_t values = 0;
  for (const WeightDecl& w : engine.plan.program.weights) values += static_cast<uint64_t>(w.rows) * static_cast<uint64_t>(w.cols);
  ESPALIER_TRY(fits(values * 4, options.model + ": its weights in fp32"));
  if (rounded) weights = rounded_weights(engine.plan.program, weights, *rounded);
  engine.unit = std::move(unit);
  ESPALIER_TRY(engine.unit->accepts(engine.plan.program));
  ESPALIER_ASSIGN(engine.model, engine.unit->compile(engine.plan.program, weights));
  const bool is_int8 = chosen.weights == ScalarType::i8;
  engine.info.threads = chosen.evaluate.threads;
  engine.info.kernels = kernels;
  engine.info.weights = rounded ? "fp16, rounded to " + options.weights : is_int8 ? "int8, one scale an output" : "fp16";
  if (chosen.evaluate.int8_inputs) engine.info.weights += ", products of int8";
  engine.info.kv = "fp16";
  engine.info.weight_bytes = is_int8 ? values : values * 2;
  return {};
}

Status place_on_static(const OpenOptions& options, Engine::Impl& engine) {
  ESPALIER_ASSIGN(const StaticOptions chosen, static_options(options, engine));
  ESPALIER_ASSIGN(std::unique_ptr<Unit> unit, make_static_unit(chosen));
  return place_static(options, engine, chosen, std::move(unit), "portable");
}

constexpr const char* kCoreAi = "static:coreai";

Status place_on_coreai(const OpenOptions& options, Engine::Impl& engine) {
  ESPALIER_ASSIGN(const std::string python, coreai_python());
  ESPALIER_ASSIGN(const StaticOptions chosen, static_options(options, engine));
  if (chosen.evaluate.int8_inputs) return unsupported("activations: Core AI's products read fp16, found \"int8\"", "activations");
  ESPALIER_ASSIGN(std::unique_ptr<Unit> unit, make_static_unit(chosen, kCoreAi, coreai_backend(python), true));
  return place_static(options, engine, chosen, std::move(unit), "Core AI");
}

Result<UnitInfo> describe_coreai() {
  ESPALIER_ASSIGN(const std::string python, coreai_python());
  ESPALIER_ASSIGN(std::unique_ptr<Unit> unit, make_static_unit({}, kCoreAi, coreai_backend(python), true));
  UnitInfo info = unit->describe();
  info.kernels = "Core AI";
  return info;
}

Result<UnitInfo> describe_static() {
  ESPALIER_ASSIGN(std::unique_ptr<Unit> unit, make_static_unit({}));
  return unit->describe();
}

Result<UnitInfo> describe_cpu() {
  ESPALIER_ASSIGN(std::unique_ptr<CpuUnit> unit, CpuUnit::make({}));
  return unit->describe();
}
Result<UnitInfo> describe_reference() { return make_reference_unit()->describe(); }

constexpr UnitChoice kUnits[] = {
    {"cpu", place_on_cpu, drafter_on_cpu, true, describe_cpu},
    {"reference", place_on_reference, drafter_from_floats, false, describe_reference},
    {"static", place_on_static, drafter_from_floats, false, describe_static},
    {kCoreAi, place_on_coreai, drafter_from_floats, false, describe_coreai},
};

}  // namespace

Result<WeightsForm> weights_form(const std::string& name) {
  if (name == "auto") return WeightsForm::automatic;
  if (name == "int8") return WeightsForm::int8;
  if (name == "int4") return WeightsForm::int4;
  if (name == "file") return WeightsForm::file;
  return invalid("weights: expected auto, int8, int4 or file, found \"" + name + "\"", "weights");
}

Result<KvType> kv_type(const std::string& name) {
  if (name == "fp16") return KvType::f16;
  if (name == "int8") return KvType::i8;
  return invalid("kv: expected fp16 or int8, found \"" + name + "\"", "kv");
}

std::span<const UnitChoice> unit_choices() { return kUnits; }

Status place_model(const OpenOptions& options, Engine::Impl& engine) {
  if (options.threads > 1024) return invalid("threads: expected at most 1024, found " + std::to_string(options.threads), "threads");
  if (options.activations != "fp16" && !options.unit.starts_with("static"))
    return invalid("activations: the " + options.unit + " unit takes none but its own, found \"" + options.activations + "\"", "activations");
  std::string names;
  for (const UnitChoice& u : kUnits) {
    if (options.unit == u.name) {
      engine.info.unit = u.name;
      return u.place(options, engine);
    }
    names += names.empty() ? u.name : std::string(" or ") + u.name;
  }
  return invalid("unit: expected " + names + ", found \"" + options.unit + "\"", "unit");
}

Result<std::unique_ptr<Model>> place_drafter(const OpenOptions& options, Engine::Impl& engine, const Checkpoint& checkpoint, const DrafterPlan& plan) {
  for (const UnitChoice& u : kUnits)
    if (options.unit == u.name) return u.place_drafter(options, engine, checkpoint, plan);
  return invalid("unit: \"" + options.unit + "\" takes no drafter", "drafter");
}

}  // namespace espalier
