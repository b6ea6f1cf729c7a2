#include <fstream>

#include "units/coreai/mlir_text.h"

namespace espalier::coreai {
namespace {

constexpr uint64_t kAlignment = 64;

Status written(std::ofstream& file, const std::string& path) {
  file.close();
  return file ? Status() : Status(Code::io, path + ": it can't be written; is there room?");
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  return written(file, path);
}

}  // namespace

Status write_program(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, const std::string& folder) {
  ESPALIER_TRY(check_weights(program, weights));
  ESPALIER_ASSIGN(const std::string text, mlir_text(lowered));
  ESPALIER_TRY(write_text(folder + "/program.mlir", text));
  const std::string path = folder + "/weights.bin";
  std::ofstream file(path, std::ios::binary);
  std::string index;
  uint64_t at = 0;
  for (size_t w = 0; w < lowered.weights.size(); ++w) {
    const std::vector<uint8_t> bytes = lowered_bytes(lowered, program, weights, w);
    const uint64_t start = (at + kAlignment - 1) / kAlignment * kAlignment;
    file << std::string(start - at, '\0');
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    at = start + bytes.size();
    index += (index.empty() ? "{" : ",\n ") + ("\"w" + std::to_string(w) + "\": [" + std::to_string(start) + ", " + std::to_string(bytes.size()) + "]");
  }
  ESPALIER_TRY(written(file, path));
  return write_text(folder + "/weights.json", index.empty() ? "{}\n" : index + "}\n");
}

}  // namespace espalier::coreai
