#include "kernels/swiglu/swiglu.h"

namespace espalier {

void swiglu_avx512(const SwigluArgs&);
void swiglu_avx2(const SwigluArgs&);
void swiglu_neon(const SwigluArgs&);
void swiglu_ref(const SwigluArgs&);

namespace {
constexpr Variant<SwigluFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, swiglu_avx512},
    {Isa::avx2, swiglu_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, swiglu_neon},
#endif
    {Isa::portable, swiglu_ref},
};
}  // namespace

std::span<const Variant<SwigluFn>> swiglu_variants() { return kVariants; }

}  // namespace espalier
