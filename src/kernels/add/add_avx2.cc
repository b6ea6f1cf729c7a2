#include "kernels/math/simd_avx2.h"
#include "kernels/add/add_simd.h"

namespace espalier {
void add_avx2(const AddArgs& args) { add_rows(args); }
}  // namespace espalier
