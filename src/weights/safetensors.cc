#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/json.h"
#include "weights/config_reader.h"

namespace espalier {
namespace {

std::string bytes_text(uint64_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

Result<std::string_view> header_text(std::span<const std::byte> file) {
  if (file.size() < 8) return corrupt("expected a safetensors file of at least 8 bytes, found " + bytes_text(file.size()));
  uint64_t length;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kSafetensorsHeaderMax) {
    return corrupt("the safetensors header claims " + bytes_text(length) + ", and at most " +
                   bytes_text(kSafetensorsHeaderMax) + " are allowed: this is no safetensors file, or a damaged one");
  }
  if (length > file.size() - 8) {
    return corrupt("the safetensors header claims " + bytes_text(length) + ", and the file has only " +
                   bytes_text(file.size() - 8) + " after the length: it is cut short");
  }
  return std::string_view(reinterpret_cast<const char*>(file.data()) + 8, static_cast<size_t>(length));
}

Result<uint64_t> unsigned_of(const Value& v, const std::string& what) {
  if (!v.is_int() || v.as_int() < 0) return corrupt(what + ": expected a whole number, found " + kind_of(v));
  return static_cast<uint64_t>(v.as_int());
}

struct Extent {
  uint64_t begin = 0, end = 0;
};

Status read_shape(const Value& shape, const std::string& where, std::vector<uint64_t>* out) {
  if (!shape.is_array()) return corrupt(where + ": shape: expected an array, found " + kind_of(shape));
  if (shape.as_array().size() > kMaxTensorDims) {
    return corrupt(where + ": expected at most " + std::to_string(kMaxTensorDims) + " dimensions, found " +
                   std::to_string(shape.as_array().size()));
  }
  for (const Value& dim : shape.as_array()) {
    ESPALIER_ASSIGN(uint64_t d, unsigned_of(dim, where + ": shape"));
    out->push_back(d);
  }
  return {};
}

// One entry of the header; `data_bytes` is what follows the header.
Status read_entry(const std::string& name, const Value& entry, uint64_t data_bytes, TensorView* tensor, Extent* extent) {
  const std::string where = "tensor " + name;
  const Value* dtype = entry.find("dtype");
  const Value* shape = entry.find("shape");
  const Value* offsets = entry.find("data_offsets");
  if (dtype == nullptr || !dtype->is_string() || shape == nullptr || offsets == nullptr || !offsets->is_array() ||
      offsets->as_array().size() != 2)
    return corrupt(where + ": expected dtype, shape and two data_offsets");
  const std::optional<StorageType> type = storage_from_safetensors(dtype->as_string());
  if (!type) return unsupported(where + ": unknown dtype \"" + dtype->as_string().substr(0, 40) + "\"", name);
  tensor->name = name;
  tensor->type = *type;
  ESPALIER_TRY(read_shape(*shape, where, &tensor->shape));
  ESPALIER_ASSIGN(extent->begin, unsigned_of(offsets->as_array()[0], where + ": data_offsets"));
  ESPALIER_ASSIGN(extent->end, unsigned_of(offsets->as_array()[1], where + ": data_offsets"));
  const std::optional<uint64_t> size = tensor_bytes(tensor->type, tensor->shape);
  if (!size) return corrupt(where + ": the shape " + shape_text(tensor->shape) + " has no size in bytes that fits");
  if (extent->begin > extent->end || extent->end - extent->begin != *size) {
    return corrupt(where + ": " + shape_text(tensor->shape) + " " + std::string(name_of(*type)) + " needs " +
                   bytes_text(*size) + ", and data_offsets are " + std::to_string(extent->begin) + " to " +
                   std::to_string(extent->end));
  }
  if (extent->end > data_bytes) {
    return corrupt(where + ": expected to end at byte " + std::to_string(extent->end) + " of the data, found only " +
                   bytes_text(data_bytes) + ": the file is cut short");
  }
  return {};
}

Status read_metadata(const Value& metadata, std::vector<std::pair<std::string, std::string>>* out) {
  if (!metadata.is_object()) return corrupt("__metadata__: expected an object, found " + kind_of(metadata));
  for (const Value::Member& m : metadata.as_object()) {
    if (!m.second.is_string()) return corrupt("__metadata__: " + m.first + ": expected a string, found " + kind_of(m.second));
    out->emplace_back(m.first, m.second.as_string());
  }
  return {};
}

// JSON keeps the last of two equal keys; here that would hide a tensor, so the raw text is searched for repeats: each
// top-level key once.
Status refuse_repeated_names(std::string_view text, size_t members) {
  size_t keys = 0;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ':' && depth == 1) ++keys;
  }
  if (keys == members) return {};
  return corrupt("the header names " + std::to_string(keys) + " entries, of which only " + std::to_string(members) +
                 " are different: a tensor name is repeated");
}

Status check_cover(const std::vector<std::pair<Extent, size_t>>& order, const std::vector<TensorView>& tensors,
                   uint64_t data_bytes) {
  uint64_t at = 0;
  for (const auto& [extent, index] : order) {
    if (extent.begin != at) {
      return corrupt("tensor " + tensors[index].name + ": expected to begin at byte " + std::to_string(at) +
                     " of the data, found " + std::to_string(extent.begin) +
                     (extent.begin < at ? ": it overlaps the one before" : ": there is a hole before it"));
    }
    at = extent.end;
  }
  if (at == data_bytes) return {};
  return corrupt("the tensors end at byte " + std::to_string(at) + " of the data, and the file has " +
                 bytes_text(data_bytes) + ": " + bytes_text(data_bytes - at) + " are left over");
}

}  // namespace

Result<Safetensors> parse_safetensors(std::span<const std::byte> file) {
  ESPALIER_ASSIGN(const std::string_view text, header_text(file));
  ESPALIER_ASSIGN(const Value header, [&]() -> Result<Value> {
    Result<Value> parsed = parse_json(text);
    if (!parsed.ok()) return std::move(parsed).status().with_context("safetensors header");
    return parsed;
  }());
  if (!header.is_object()) return corrupt("safetensors header: expected an object, found " + kind_of(header));
  const Value::Object& members = header.as_object();
  ESPALIER_TRY(refuse_repeated_names(text, members.size()));
  if (members.size() > kSafetensorsTensorsMax) {
    return corrupt("expected at most " + std::to_string(kSafetensorsTensorsMax) + " tensors, found " +
                   std::to_string(members.size()));
  }
  Safetensors out;
  out.header_bytes = 8 + text.size();
  const uint64_t data_bytes = file.size() - out.header_bytes;
  std::vector<TensorView> tensors;
  std::vector<std::pair<Extent, size_t>> order;
  for (const Value::Member& m : members) {
    if (m.first == "__metadata__") {
      ESPALIER_TRY(read_metadata(m.second, &out.metadata));
      continue;
    }
    Extent extent;
    TensorView tensor;
    ESPALIER_TRY(read_entry(m.first, m.second, data_bytes, &tensor, &extent));
    tensor.data = file.subspan(out.header_bytes + extent.begin, extent.end - extent.begin);
    order.emplace_back(extent, tensors.size());
    tensors.push_back(std::move(tensor));
  }
  if (tensors.empty()) return corrupt("no weights found: the file holds a header and no tensor");
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {  // empty tensors share an offset with the next
    return std::tie(a.first.begin, a.first.end, a.second) < std::tie(b.first.begin, b.first.end, b.second);
  });
  ESPALIER_TRY(check_cover(order, tensors, data_bytes));
  for (const auto& [extent, index] : order) out.tensors.push_back(std::move(tensors[index]));
  return out;
}

}  // namespace espalier
