#include "kernels/math/simd_avx512.h"

namespace espalier {
namespace {
inline Vf vload_bf16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
}  // namespace
}  // namespace espalier

#include "kernels/table_dot/table_dot_simd.h"

namespace espalier {
void table_dot_avx512(const TableDotArgs& args) { table_dot_vectors(args); }
}  // namespace espalier
