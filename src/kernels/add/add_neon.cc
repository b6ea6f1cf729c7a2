#include "kernels/math/simd_neon.h"
#include "kernels/add/add_simd.h"

namespace espalier {
void add_neon(const AddArgs& args) { add_rows(args); }
}  // namespace espalier
