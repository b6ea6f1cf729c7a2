#include "kernels/attention/attention.h"

namespace espalier {

void attention_avx512(const AttentionArgs&, const AttentionItem&, void*);
void attention_avx2(const AttentionArgs&, const AttentionItem&, void*);
void attention_neon(const AttentionArgs&, const AttentionItem&, void*);
void attention_ref(const AttentionArgs&, const AttentionItem&, void*);

namespace {
constexpr Variant<AttentionFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, attention_avx512},
    {Isa::avx2, attention_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, attention_neon},
#endif
    {Isa::portable, attention_ref},
};
}  // namespace

std::span<const Variant<AttentionFn>> attention_variants() { return kVariants; }

}  // namespace espalier
