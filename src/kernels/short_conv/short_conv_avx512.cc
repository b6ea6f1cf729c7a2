#include "kernels/math/simd_avx512.h"
#include "kernels/short_conv/short_conv_simd.h"

namespace espalier {
void short_conv_avx512(const ShortConvArgs& args) { short_conv_channels(args); }
}  // namespace espalier
