// For tests of this room: folders that vanish, and files built byte by byte (also wrong ones).
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::test {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "espalier-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) != nullptr ? pattern : "";
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::string path = *this / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  std::vector<std::string> list() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename().string());
    return names;
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string safetensors(const std::string& header, std::string_view data) {
  return raw(uint64_t{header.size()}) + header + std::string(data);
}

// One f32 tensor "w" of `n` zeros.
inline std::string small_safetensors(size_t n = 4, const std::string& name = "w") {
  const std::string end = std::to_string(4 * n);
  return safetensors("{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(n) + "],\"data_offsets\":[0," + end + "]}}",
                     std::string(4 * n, '\0'));
}

// GGUF by hand: add keys and tensors as raw bytes, then bytes().
class GgufBytes {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  static std::string text(std::string_view s) { return raw(uint64_t{s.size()}) + std::string(s); }
  GgufBytes& key(std::string_view name, uint32_t type, std::string_view value) {
    keys_ += text(name) + raw(type) + std::string(value);
    ++key_count;
    return *this;
  }
  GgufBytes& string(std::string_view name, std::string_view value) { return key(name, 8, text(value)); }
  GgufBytes& u32(std::string_view name, uint32_t value) { return key(name, 4, raw(value)); }
  GgufBytes& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    infos_ += text(name) + raw(static_cast<uint32_t>(dims.size()));
    for (uint64_t d : dims) infos_ += raw(d);
    infos_ += raw(type) + raw(offset);
    ++tensor_count;
    return *this;
  }
  GgufBytes& infos(std::string_view bytes) {
    infos_ += bytes;
    return *this;
  }
  std::string bytes(std::string_view data = {}) const {
    std::string file = "GGUF" + raw(version) + raw(tensor_count) + raw(key_count) + keys_ + infos_;
    if (tensor_count != 0) file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + std::string(data);
  }
  uint64_t tensor_count = 0, key_count = 0;

 private:
  std::string keys_, infos_;
};

}  // namespace espalier::test
