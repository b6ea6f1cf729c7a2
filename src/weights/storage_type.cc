#include "weights/storage_type.h"

#include <array>

namespace espalier {
namespace {

using enum StorageType;

// In the order of the enumeration, so that info() is an index; the static_assert below holds it there.
constexpr std::array<StorageInfo, kStorageTypes> kTable = {{
    {f32, "f32", "F32", 0, 1, 4, true, false},
    {f16, "f16", "F16", 1, 1, 2, true, false},
    {bf16, "bf16", "BF16", 30, 1, 2, true, false},
    {f64, "f64", "F64", 28, 1, 8, false, false},
    {i8, "i8", "I8", 24, 1, 1, false, false},
    {u8, "u8", "U8", -1, 1, 1, false, false},
    {i16, "i16", "I16", 25, 1, 2, false, false},
    {u16, "u16", "U16", -1, 1, 2, false, false},
    {i32, "i32", "I32", 26, 1, 4, false, false},
    {u32, "u32", "U32", -1, 1, 4, false, false},
    {i64, "i64", "I64", 27, 1, 8, false, false},
    {u64, "u64", "U64", -1, 1, 8, false, false},
    {boolean, "bool", "BOOL", -1, 1, 1, false, false},
    {q8_0, "q8_0", "", 8, 32, 34, false, true},
    {q4_0, "q4_0", "", 2, 32, 18, false, true},
    {q4_1, "q4_1", "", 3, 32, 20, false, true},
    {q5_0, "q5_0", "", 6, 32, 22, false, true},
    {q5_1, "q5_1", "", 7, 32, 24, false, true},
    {q4_k, "q4_k", "", 12, 256, 144, false, true},
    {q5_k, "q5_k", "", 13, 256, 176, false, true},
    {q6_k, "q6_k", "", 14, 256, 210, false, true},
    {q8_1, "q8_1", "", 9, 32, 36, false, false},
    {q8_k, "q8_k", "", 15, 256, 292, false, false},
    {q2_k, "q2_k", "", 10, 256, 84, false, false},
    {q3_k, "q3_k", "", 11, 256, 110, false, false},
    {iq1_s, "iq1_s", "", 19, 256, 50, false, false},
    {iq1_m, "iq1_m", "", 29, 256, 56, false, false},
    {iq2_xxs, "iq2_xxs", "", 16, 256, 66, false, false},
    {iq2_xs, "iq2_xs", "", 17, 256, 74, false, false},
    {iq2_s, "iq2_s", "", 22, 256, 82, false, false},
    {iq3_xxs, "iq3_xxs", "", 18, 256, 98, false, false},
    {iq3_s, "iq3_s", "", 21, 256, 110, false, false},
    {iq4_nl, "iq4_nl", "", 20, 32, 18, false, false},
    {iq4_xs, "iq4_xs", "", 23, 256, 136, false, false},
    {tq1_0, "tq1_0", "", 34, 256, 54, false, false},
    {tq2_0, "tq2_0", "", 35, 256, 66, false, false},
    {mxfp4, "mxfp4", "", 39, 32, 17, false, false},
    {nvfp4, "nvfp4", "", 40, 64, 36, false, false},
    {q1_0, "q1_0", "", 41, 128, 18, false, false},
    {f8_e4m3, "f8_e4m3", "F8_E4M3", -1, 1, 1, false, false},
    {f8_e5m2, "f8_e5m2", "F8_E5M2", -1, 1, 1, false, false},
    {f8_e8m0, "f8_e8m0", "F8_E8M0", -1, 1, 1, false, false},
    {f4, "f4", "F4", -1, 2, 1, false, false},
    {f6_e2m3, "f6_e2m3", "F6_E2M3", -1, 4, 3, false, false},
    {f6_e3m2, "f6_e3m2", "F6_E3M2", -1, 4, 3, false, false},
    {c64, "c64", "C64", -1, 1, 8, false, false},
}};

constexpr bool in_order() {
  for (int i = 0; i < kStorageTypes; ++i)
    if (static_cast<int>(kTable[static_cast<size_t>(i)].type) != i) return false;
  return true;
}
static_assert(in_order());

}  // namespace

const StorageInfo& info(StorageType type) { return kTable[static_cast<size_t>(type)]; }

std::optional<StorageType> storage_from_safetensors(std::string_view dtype) {
  if (dtype.empty()) return {};
  for (const StorageInfo& entry : kTable)
    if (entry.safetensors == dtype) return entry.type;
  return {};
}

std::optional<StorageType> storage_from_ggml(uint32_t number) {
  for (const StorageInfo& entry : kTable)
    if (entry.ggml >= 0 && static_cast<uint32_t>(entry.ggml) == number) return entry.type;
  return {};
}

}  // namespace espalier
