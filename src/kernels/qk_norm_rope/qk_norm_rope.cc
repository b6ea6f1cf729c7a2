#include "kernels/qk_norm_rope/qk_norm_rope.h"

#include <cmath>

namespace espalier {

void qk_norm_rope_avx512(const QkNormRopeArgs&);
void qk_norm_rope_avx2(const QkNormRopeArgs&);
void qk_norm_rope_neon(const QkNormRopeArgs&);
void qk_norm_rope_ref(const QkNormRopeArgs&);

namespace {
constexpr Variant<QkNormRopeFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, qk_norm_rope_avx512},
    {Isa::avx2, qk_norm_rope_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, qk_norm_rope_neon},
#endif
    {Isa::portable, qk_norm_rope_ref},
};
}  // namespace

float attention_q_scale(uint32_t head_dim) { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

std::span<const Variant<QkNormRopeFn>> qk_norm_rope_variants() { return kVariants; }

}  // namespace espalier
