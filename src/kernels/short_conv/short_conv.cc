#include "kernels/short_conv/short_conv.h"

namespace espalier {

void short_conv_avx512(const ShortConvArgs&);
void short_conv_avx2(const ShortConvArgs&);
void short_conv_neon(const ShortConvArgs&);
void short_conv_ref(const ShortConvArgs&);

namespace {
constexpr Variant<ShortConvFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, short_conv_avx512},
    {Isa::avx2, short_conv_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, short_conv_neon},
#endif
    {Isa::portable, short_conv_ref},
};
}  // namespace

std::span<const Variant<ShortConvFn>> short_conv_variants() { return kVariants; }

}  // namespace espalier
