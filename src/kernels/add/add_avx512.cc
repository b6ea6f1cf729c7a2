#include "kernels/math/simd_avx512.h"
#include "kernels/add/add_simd.h"

namespace espalier {
void add_avx512(const AddArgs& args) { add_rows(args); }
}  // namespace espalier
