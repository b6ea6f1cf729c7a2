#include "weights/checkpoint.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "weights/config_reader.h"

namespace espalier {
namespace {

constexpr std::string_view kWeight = ".weight", kScales = ".scales", kBiases = ".biases";

// Names of tools that also hold a vision part, without their wrapper.
std::string plain_name(std::string_view name) {
  constexpr std::string_view kOuter = "language_model.", kInner = "model.language_model.";
  if (name.starts_with(kOuter)) return std::string(name.substr(kOuter.size()));
  if (name.starts_with(kInner)) return "model." + std::string(name.substr(kInner.size()));
  return std::string(name);
}

std::string_view module_of(std::string_view weight_name) {
  return weight_name.ends_with(kWeight) ? weight_name.substr(0, weight_name.size() - kWeight.size()) : weight_name;
}

std::string text_or(const Value& config, std::string_view key, std::string_view otherwise) {
  const Value* v = config.find(key);
  return v != nullptr && v->is_string() ? v->as_string() : std::string(otherwise);
}

// What the file calls itself, for refusals.
std::string architecture(const Value& config) {
  return text_or(config, "model_type", text_or(config, "general.architecture", "not named"));
}

bool counts_experts(const Value::Member& m) {
  constexpr std::string_view kKeys[] = {"num_experts", "num_local_experts", "n_routed_experts"};
  const bool key = std::ranges::find(kKeys, m.first) != std::end(kKeys) || m.first.ends_with(".expert_count");
  return key && m.second.is_number() && m.second.as_double() > 1;
}

bool has_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}
bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.starts_with(part); });
}

Status refused(const Value& config, const std::string& what, const std::string& sign) {
  return unsupported("this is " + what + " (architecture " + architecture(config) + ", " + sign +
                     "), which Espalier does not run");
}

// Files that people try and that look like a model: known by their keys and tensor names.
Status refuse_other_kinds(const CheckpointParts& parts) {
  const Value& config = parts.config;
  const std::string type = text_or(config, "general.type", "model");
  if (type == "adapter") return refused(config, "a LoRA adapter, not a model", "general.type adapter");
  if (type == "mmproj" || architecture(config) == "clip") return refused(config, "a vision projector (mmproj)", "general.type " + type);
  if (config.is_object()) {
    for (const Value::Member& m : config.as_object())
      if (counts_experts(m)) return refused(config, "a mixture of experts", m.first);
  }
  for (const TensorView& t : parts.tensors) {
    const std::string sign = "tensor " + t.name;
    if (has_any(t.name, {".lora_a", ".lora_b", ".lora_A", ".lora_B"})) return refused(config, "a LoRA adapter, not a model", sign);
    if (has_any(t.name, {".experts.", "_exps.", ".switch_mlp."})) return refused(config, "a mixture of experts", sign);
    if (begins_with_any(t.name, {"vision_tower.", "model.vision_tower.", "vision_model.", "multi_modal_projector.",
                                 "model.multi_modal_projector.", "v.blk.", "mm."}))
      return refused(config, "a vision model or projector", sign);
  }
  return {};
}

bool is_read(StorageType type) { return type <= StorageType::q6_k; }

}  // namespace

const char* name_of(CheckpointKind kind) {
  static constexpr const char* kNames[] = {"hf", "mlx", "gguf", "packed", "tokenizer_only", "memory", "npu"};
  return kNames[static_cast<size_t>(kind)];
}

Result<Checkpoint> Checkpoint::make(CheckpointParts parts) {
  ESPALIER_TRY(refuse_other_kinds(parts));
  for (TensorView& t : parts.tensors) {
    if (!is_read(t.type)) {
      return unsupported("tensor " + t.name + ": the type " + std::string(espalier::name_of(t.type)) +
                             " is not read; use a file with f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k or "
                             "q6_k weights", t.name);
    }
    ESP_CHECK(tensor_bytes(t.type, t.shape) == t.data.size());
    t.name = plain_name(t.name);
  }
  std::sort(parts.tensors.begin(), parts.tensors.end(), [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  for (size_t i = 1; i < parts.tensors.size(); ++i) {
    if (parts.tensors[i].name == parts.tensors[i - 1].name)
      return corrupt("tensor " + parts.tensors[i].name + " is there twice", parts.tensors[i].name);
  }
  Checkpoint c;
  c.parts_ = std::move(parts);
  return c;
}

bool Checkpoint::has_gguf_metadata() const { return parts_.config.find("general.architecture") != nullptr; }

const std::string& Checkpoint::chat_template() const {
  static const std::string none;
  for (const TemplateFile& t : parts_.chat_templates)
    if (t.name == "default") return t.text;
  return none;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto at = std::lower_bound(parts_.tensors.begin(), parts_.tensors.end(), name,
                                   [](const TensorView& t, std::string_view n) { return t.name < n; });
  return at != parts_.tensors.end() && at->name == name ? &*at : nullptr;
}

Status Checkpoint::missing(const std::string& name) const {
  return corrupt("tensor " + name + " is missing: expected it among the " + std::to_string(parts_.tensors.size()) +
                     " tensors of " + parts_.path, name);
}

const TensorView* Checkpoint::scales_of(std::string_view weight_name) const {
  return find(std::string(module_of(weight_name)) + std::string(kScales));
}

Result<Checkpoint::Affine> Checkpoint::affine_of(const std::string& module) const {
  const char* key = parts_.config.find("quantization") != nullptr ? "quantization" : "quantization_config";
  const Value* settings = parts_.config.find(key);
  const std::string where = std::string("config.json: ") + key;
  if (settings == nullptr || !settings->is_object())
    return corrupt("tensor " + module + ".scales is there, and config.json has no quantization that says its bits", module);
  const Value* own = nullptr;
  for (const Value::Member& m : settings->as_object()) {
    if (plain_name(m.first) == module) own = &m.second;
  }
  if (own != nullptr && own->is_bool() && !own->as_bool())
    return corrupt(where + ": " + module + " is false, and tensor " + module + ".scales is there", module);
  const bool overridden = own != nullptr && own->is_object();
  const Value nothing;
  ConfigReader common(*settings, where);
  ConfigReader special(overridden ? *own : nothing, where + ": " + module);
  const auto reader = [&](const char* name) -> ConfigReader& { return overridden && special.has(name) ? special : common; };
  ESPALIER_ASSIGN(const std::optional<std::string> mode, reader("mode").optional_string("mode"));
  if (mode && *mode != "affine")
    return unsupported(where + ": mode " + *mode + " (module " + module + ") is not read; affine is", module);
  ESPALIER_ASSIGN(const int64_t bits, reader("bits").required_int("bits", 2, 8));
  ESPALIER_ASSIGN(const int64_t group, reader("group_size").required_int("group_size", 32, 128));
  return Affine{static_cast<uint32_t>(bits), static_cast<uint32_t>(group)};
}

Result<AffineTensors> Checkpoint::affine_tensors(const std::string& weight_name, const TensorView& weight) const {
  const std::string module(module_of(weight_name));
  ESPALIER_ASSIGN(const Affine affine, affine_of(module));
  const TensorView* biases = find(module + std::string(kBiases));
  if (biases == nullptr) return missing(module + std::string(kBiases));
  return AffineTensors{&weight, scales_of(weight_name), biases, affine.bits, affine.group};
}

Result<SourceMatrix> Checkpoint::matrix(const std::string& weight_name, uint64_t rows, uint64_t cols) const {
  const TensorView* weight = find(weight_name);
  if (weight == nullptr) return missing(weight_name);
  if (kind() == CheckpointKind::npu) {
    const TensorView* scales = find(weight_name + kRowScaleSuffix);
    if (scales == nullptr) return missing(weight_name + kRowScaleSuffix);
    return SourceMatrix::make_row_scaled(*weight, *scales, rows, cols);
  }
  if (scales_of(weight_name) == nullptr) return SourceMatrix::make(*weight, rows, cols);
  ESPALIER_ASSIGN(const AffineTensors tensors, affine_tensors(weight_name, *weight));
  return SourceMatrix::make(tensors, rows, cols);
}

Result<std::pair<uint64_t, uint64_t>> Checkpoint::matrix_shape(const std::string& weight_name) const {
  const TensorView* weight = find(weight_name);
  if (weight == nullptr) return missing(weight_name);
  if (weight->shape.size() != 2) {
    return corrupt("tensor " + weight_name + ": expected two dimensions, found " + shape_text(weight->shape), weight_name);
  }
  std::pair<uint64_t, uint64_t> shape{weight->shape[0], weight->shape[1]};
  if (scales_of(weight_name) == nullptr) return shape;
  ESPALIER_ASSIGN(const AffineTensors tensors, affine_tensors(weight_name, *weight));
  uint64_t bits_in_row;
  if (__builtin_mul_overflow(shape.second, uint64_t{32}, &bits_in_row)) bits_in_row = 1;
  if (bits_in_row % tensors.bits != 0) {
    return corrupt("tensor " + weight_name + ": rows of " + std::to_string(shape.second) + " words hold no whole number of " +
                       std::to_string(tensors.bits) + "-bit codes", weight_name);
  }
  shape.second = bits_in_row / tensors.bits;
  return shape;
}

Result<std::vector<float>> Checkpoint::vector(const std::string& name, uint64_t size) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) return missing(name);
  return read_vector(*tensor, size);
}

Result<std::vector<float>> Checkpoint::floats(const std::string& name, std::span<const uint64_t> shape) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) return missing(name);
  return read_floats(*tensor, shape);
}

std::vector<std::string> Checkpoint::unclaimed(std::span<const std::string> claimed) const {
  std::unordered_set<std::string> known(claimed.begin(), claimed.end());
  for (const std::string& name : claimed) {
    const TensorView* weight = find(name);
    if (weight == nullptr || scales_of(name) == nullptr) continue;
    known.insert(std::string(module_of(name)) + std::string(kScales));
    known.insert(std::string(module_of(name)) + std::string(kBiases));
  }
  std::vector<std::string> left;
  for (const TensorView& t : parts_.tensors)
    if (!known.contains(t.name)) left.push_back(t.name);
  return left;
}

}  // namespace espalier
