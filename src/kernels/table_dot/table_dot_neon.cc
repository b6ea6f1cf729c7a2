#include "kernels/math/simd_neon.h"

namespace espalier {
namespace {
inline Vf vload_bf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
}  // namespace
}  // namespace espalier

#include "kernels/table_dot/table_dot_simd.h"

namespace espalier {
void table_dot_neon(const TableDotArgs& args) { table_dot_vectors(args); }
}  // namespace espalier
