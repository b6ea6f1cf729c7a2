#include "units/coreml/mlpackage.h"

#include <filesystem>
#include <fstream>

#include "lower/port_names.h"
#include "units/coreml/mil_function.h"

namespace espalier::coreml {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kAlignment = 64;
constexpr uint32_t kSentinel = 0xDEADBEEF;
constexpr uint64_t kSpecification = 9;
enum ArrayType : uint64_t { kArrayFloat16 = 65552, kArrayInt32 = 131104 };

// One package holds two items, always the same: fixed identities keep the bytes of a program the same.
constexpr const char* kManifest = R"({
  "fileFormatVersion": "1.0.0",
  "itemInfoEntries": {
    "00000000-0000-4000-8000-000000000001": {
      "author": "com.apple.CoreML",
      "description": "CoreML Model Specification",
      "name": "model.mlmodel",
      "path": "com.apple.CoreML/model.mlmodel"
    },
    "00000000-0000-4000-8000-000000000002": {
      "author": "com.apple.CoreML",
      "description": "CoreML Model Weights",
      "name": "weights",
      "path": "com.apple.CoreML/weights"
    }
  },
  "rootModelIdentifier": "00000000-0000-4000-8000-000000000001"
}
)";

uint64_t bytes_of(const LoweredWeight& w) { return static_cast<uint64_t>(elements(w.shape)) * (w.type == ScalarType::i8 ? 1 : 2); }
uint64_t aligned(uint64_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

// Where the record of each weight lies.
std::vector<uint64_t> layout(const LoweredProgram& lowered) {
  std::vector<uint64_t> offsets;
  uint64_t at = kAlignment;
  for (const LoweredWeight& w : lowered.weights) {
    offsets.push_back(at);
    at = aligned(at + kAlignment + bytes_of(w));
  }
  return offsets;
}

std::string block_of(std::initializer_list<std::pair<uint64_t, int>> numbers) {
  std::string out;
  for (auto [value, width] : numbers)
    for (int i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i));
  out.resize(kAlignment);
  return out;
}

Status write_file(const fs::path& path, const std::string& data) {
  std::ofstream file(path, std::ios::binary);
  file.write(data.data(), static_cast<std::streamsize>(data.size()));
  file.close();
  return file ? Status() : Status(Code::io, path.string() + ": it can't be written; is there room?");
}

Status write_weights(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, const std::vector<uint64_t>& offsets, const fs::path& path) {
  std::ofstream file(path, std::ios::binary);
  file << block_of({{lowered.weights.size(), 4}, {2, 4}});
  for (size_t w = 0; w < lowered.weights.size(); ++w) {
    const std::vector<uint8_t> data = lowered_bytes(lowered, program, weights, w);
    if (data.size() != bytes_of(lowered.weights[w])) return {Code::internal, "weight " + lowered.weights[w].name + " has " + std::to_string(data.size()) + " bytes, expected " + std::to_string(bytes_of(lowered.weights[w]))};
    file << block_of({{kSentinel, 4}, {lowered.weights[w].type == ScalarType::i8 ? 4u : 1u, 4}, {data.size(), 8}, {offsets[w] + kAlignment, 8}});
    file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
    file << std::string(aligned(data.size()) - data.size(), '\0');
  }
  file.close();
  return file ? Status() : Status(Code::io, path.string() + ": it can't be written; is there room?");
}

Message array_type(const Shape& shape, ScalarType type) {
  Message packed;
  for (int32_t d : shape) packed.varint(static_cast<uint64_t>(d));
  return Message().bytes(1, packed.data()).number(2, type == ScalarType::f16 ? kArrayFloat16 : kArrayInt32);
}
Message feature(const std::string& name, int kind, const Message& type) { return Message().bytes(1, name).message(3, Message().message(kind, type)); }

Message description(const LoweredProgram& p, const LoweredFunction& f) {
  constexpr int kMultiArray = 5, kState = 8;
  Message d;
  d.bytes(1, function_name(f.spec));
  const auto array = [&](ValueId v) { return array_type(f.values[static_cast<size_t>(v)].shape, f.values[static_cast<size_t>(v)].type); };
  for (const LoweredPort& in : f.inputs) d.message(2, feature(port_name(in.name), kMultiArray, array(in.value)));
  for (const LoweredPort& out : f.outputs) d.message(3, feature(output_name(p, out), kMultiArray, array(out.value)));
  for (int32_t s : states_of(f)) {
    const LoweredState& state = p.states[static_cast<size_t>(s)];
    d.message(6, feature(port_name(state.name), kState, Message().message(1, array_type(state_shape(state, f.spec), ScalarType::f16))));
  }
  return d;
}

Result<Message> model_of(const LoweredProgram& lowered, const std::vector<uint64_t>& offsets) {
  Message program, functions;
  program.number(1, 1);
  std::string first;
  for (const LoweredFunction& f : lowered.functions) {
    if (!is_exported(f)) continue;
    if (first.empty()) first = function_name(f.spec);
    ESPALIER_ASSIGN(const Message mil, mil_function(lowered, f, offsets));
    program.entry(2, function_name(f.spec), mil);
    functions.message(20, description(lowered, f));
  }
  if (first.empty()) return invalid("Core ML: the program " + lowered.family + " has no function that gives anything");
  functions.bytes(21, first).message(100, Message());
  return Message().number(1, kSpecification).message(2, functions).message(502, program);
}

}  // namespace

Status write_mlpackage(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, const std::string& folder) {
  ESPALIER_TRY(check_weights(program, weights));
  const std::vector<uint64_t> offsets = layout(lowered);
  ESPALIER_ASSIGN(const Message model, model_of(lowered, offsets));
  const fs::path data = fs::path(folder) / "Data" / "com.apple.CoreML";
  std::error_code error;
  fs::create_directories(data / "weights", error);
  if (error) return {Code::io, data.string() + ": no folder can be made there: " + error.message()};
  ESPALIER_TRY(write_weights(lowered, program, weights, offsets, data / "weights" / "weight.bin"));
  ESPALIER_TRY(write_file(data / "model.mlmodel", model.data()));
  return write_file(fs::path(folder) / "Manifest.json", kManifest);
}

}  // namespace espalier::coreml
