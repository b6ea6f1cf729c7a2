#include "kernels/math/apply.h"

namespace espalier {

void apply_avx512(const ApplyArgs&);
void apply_avx2(const ApplyArgs&);
void apply_neon(const ApplyArgs&);
void apply_ref(const ApplyArgs&);

namespace {
constexpr Variant<ApplyFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, apply_avx512},
    {Isa::avx2, apply_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, apply_neon},
#endif
    {Isa::portable, apply_ref},
};
}  // namespace

std::span<const Variant<ApplyFn>> apply_variants() { return kVariants; }

}  // namespace espalier
