// How the numbers of a tensor lie in a file. One table: every type that safetensors and GGUF name, also those that
// Espalier does not read, so that a refusal can name them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace espalier {

enum class StorageType : uint8_t {
  f32, f16, bf16, f64,
  i8, u8, i16, u16, i32, u32, i64, u64, boolean,
  // GGUF blocks that are read
  q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k,
  // named only
  q8_1, q8_k, q2_k, q3_k,
  iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq4_nl, iq4_xs,
  tq1_0, tq2_0, mxfp4, nvfp4, q1_0,
  f8_e4m3, f8_e5m2, f8_e8m0, f4, f6_e2m3, f6_e3m2, c64,
};
inline constexpr int kStorageTypes = static_cast<int>(StorageType::c64) + 1;

struct StorageInfo {
  StorageType type;
  std::string_view name;         // lower case, as messages print it
  std::string_view safetensors;  // its dtype there; empty if there is none
  int32_t ggml;                  // its number in GGUF; -1 if there is none
  uint32_t block_values;         // values in a block: 1 for plain numbers
  uint32_t block_bytes;          // 0: layout not known here, extents can't be checked
  bool is_float;                 // f32, f16, bf16
  bool is_blocks;                // a GGUF block type that SourceMatrix reads
};

const StorageInfo& info(StorageType type);
inline std::string_view name_of(StorageType type) { return info(type).name; }
std::optional<StorageType> storage_from_safetensors(std::string_view dtype);
std::optional<StorageType> storage_from_ggml(uint32_t number);

}  // namespace espalier
