// A config object with a quantised module beside it: typed reading and the affine settings.
#include <memory>
#include <string_view>

#include "base/json.h"
#include "weights/checkpoint.h"
#include "weights/config_reader.h"

namespace {

void read_keys(const espalier::Value& config) {
  espalier::ConfigReader r(config, "config.json");
  const espalier::RefusedKey table[] = {{"sliding_window", espalier::Value(), "x"}, {"*softcap*", espalier::Value(), "x"},
                                        {"partial_rotary_factor", espalier::Value(1.0), "x"}};
  static_cast<void>(r.required_int("hidden_size", 1, 1 << 20));
  static_cast<void>(r.optional_number("norm_eps", 0, 1));
  static_cast<void>(r.optional_bool("conv_bias"));
  static_cast<void>(r.optional_string("model_type"));
  static_cast<void>(r.optional_ints("full_attn_idxs", 0, 0, 100));
  static_cast<void>(r.required_ints("head_count_kv", 4, 0, 100, true));
  static_cast<void>(r.optional_strings("layer_types", 0));
  static_cast<void>(r.first_of({"rope_theta", "theta"}));
  if (espalier::Result<std::optional<espalier::ConfigReader>> rope = r.optional_object("rope_parameters"); rope.ok() && rope->has_value())
    static_cast<void>((*rope)->required_number("rope_theta", 1, 1e9));
  static_cast<void>(r.refuse_if_present(table));
  const char* const ignored[] = {"use_*", "*_token_id"};
  r.ignore(ignored);
  static_cast<void>(r.unread());
}

void add(espalier::CheckpointParts& parts, const char* name, espalier::StorageType type, std::vector<uint64_t> shape) {
  parts.buffers.push_back(std::make_unique<std::vector<std::byte>>(espalier::tensor_bytes(type, shape).value()));
  parts.tensors.push_back({name, type, std::move(shape), *parts.buffers.back()});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  espalier::Result<espalier::Value> config = espalier::parse_json({reinterpret_cast<const char*>(data), size});
  if (!config.ok()) return 0;
  read_keys(*config);
  espalier::CheckpointParts parts;
  parts.config = std::move(*config);
  add(parts, "m.weight", espalier::StorageType::u32, {2, 24});
  add(parts, "m.scales", espalier::StorageType::bf16, {2, 2});
  add(parts, "m.biases", espalier::StorageType::bf16, {2, 2});
  espalier::Result<espalier::Checkpoint> c = espalier::Checkpoint::make(std::move(parts));
  if (!c.ok()) return 0;
  const auto shape = c->matrix_shape("m.weight");
  if (!shape.ok()) return 0;
  espalier::Result<espalier::SourceMatrix> m = c->matrix("m.weight", shape->first, shape->second);
  if (!m.ok()) return 0;
  std::vector<float> values(m->rows() * m->cols());
  m->dequantize(0, m->rows(), values.data());
  return 0;
}
