#include "kernels/math/simd_neon.h"
#include "kernels/short_conv/short_conv_simd.h"

namespace espalier {
void short_conv_neon(const ShortConvArgs& args) { short_conv_channels(args); }
}  // namespace espalier
