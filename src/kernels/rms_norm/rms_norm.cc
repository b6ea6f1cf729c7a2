#include "kernels/rms_norm/rms_norm.h"

namespace espalier {

void rms_norm_avx512(const RmsNormArgs&);
void rms_norm_avx2(const RmsNormArgs&);
void rms_norm_neon(const RmsNormArgs&);
void rms_norm_ref(const RmsNormArgs&);

namespace {
constexpr Variant<RmsNormFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, rms_norm_avx512},
    {Isa::avx2, rms_norm_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, rms_norm_neon},
#endif
    {Isa::portable, rms_norm_ref},
};
}  // namespace

std::span<const Variant<RmsNormFn>> rms_norm_variants() { return kVariants; }

}  // namespace espalier
