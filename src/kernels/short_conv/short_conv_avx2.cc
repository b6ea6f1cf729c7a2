#include "kernels/math/simd_avx2.h"
#include "kernels/short_conv/short_conv_simd.h"

namespace espalier {
void short_conv_avx2(const ShortConvArgs& args) { short_conv_channels(args); }
}  // namespace espalier
