#include "kernels/add/add.h"

namespace espalier {

void add_avx512(const AddArgs&);
void add_avx2(const AddArgs&);
void add_neon(const AddArgs&);
void add_ref(const AddArgs&);

namespace {
constexpr Variant<AddFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, add_avx512},
    {Isa::avx2, add_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, add_neon},
#endif
    {Isa::portable, add_ref},
};
}  // namespace

std::span<const Variant<AddFn>> add_variants() { return kVariants; }

}  // namespace espalier
