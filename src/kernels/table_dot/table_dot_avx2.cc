#include "kernels/math/simd_avx2.h"

namespace espalier {
namespace {
inline Vf vload_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
}  // namespace
}  // namespace espalier

#include "kernels/table_dot/table_dot_simd.h"

namespace espalier {
void table_dot_avx2(const TableDotArgs& args) { table_dot_vectors(args); }
}  // namespace espalier
