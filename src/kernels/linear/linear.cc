#include "kernels/linear/linear.h"

namespace espalier {

void linear_portable(const LinearArgs& args);
#if defined(__x86_64__)
void linear_amx(const LinearArgs& args);
void linear_avx512(const LinearArgs& args);
void linear_avx_vnni(const LinearArgs& args);
void linear_avx2(const LinearArgs& args);
#elif defined(__aarch64__)
void linear_neon(const LinearArgs& args);
#endif

namespace {

constexpr Variant<LinearFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::amx_int8, linear_amx},
    {Isa::avx512_vnni, linear_avx512},
    {Isa::avx_vnni, linear_avx_vnni},
    {Isa::avx2, linear_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, linear_neon},
#endif
    {Isa::portable, linear_portable},
};

constexpr uint32_t kTileRowsMax = 8;
constexpr uint32_t kChunkInputsMax = 4096;

}  // namespace

std::span<const Variant<LinearFn>> linear_variants() { return kVariants; }

uint32_t LinearPlan::tile_rows(uint32_t n_rows, const PackedForm& form) const {
  if (row_major_min != 0 && n_rows >= row_major_min && form.cols >= row_major_cols_min) return 1;
  return n_rows <= narrow_rows_max ? tile_rows_narrow : tile_rows_wide;
}

LinearPlan default_linear_plan(Isa isa) {
  LinearPlan plan;
  if (isa == Isa::avx2) plan.tile_rows_narrow = plan.tile_rows_wide = 8;
  if (isa == Isa::neon_dotprod) plan.tile_rows_narrow = plan.tile_rows_wide = 8;
  if (isa == Isa::amx_int8) {
    plan.row_major_min = 13;          // below, tiles of 16 rows are mostly air
    plan.row_major_cols_min = 1024;  // with few groups a panel is over before steps overlap
  }
  return plan;
}

bool valid(const LinearPlan& plan) {
  const auto rows = [](uint32_t n) { return n >= 1 && n <= kTileRowsMax; };
  const auto inputs = [](uint32_t n) { return n >= kGroupMax && n <= kChunkInputsMax; };
  return rows(plan.tile_rows_narrow) && rows(plan.tile_rows_wide) && inputs(plan.chunk_inputs_narrow) &&
         inputs(plan.chunk_inputs_wide);
}

// Sums of a panel (of whole tiles of 16 rows), and one chunk of 4-bit codes unpacked to bytes with its scales and offsets (at most fp32 for groups of 32).
size_t linear_scratch_bytes(uint32_t n_rows) {
  constexpr size_t kChunkBytes = size_t{kChunkInputsMax} * kPanelOutputs + kChunkInputsMax / 32 * kPanelOutputs * 8;
  return (size_t{n_rows} + 15) / 16 * 16 * kPanelOutputs * sizeof(float) + kChunkBytes;
}

}  // namespace espalier
