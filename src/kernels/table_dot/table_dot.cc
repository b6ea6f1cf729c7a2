#include "kernels/table_dot/table_dot.h"

namespace espalier {

void table_dot_avx512(const TableDotArgs&);
void table_dot_avx2(const TableDotArgs&);
void table_dot_neon(const TableDotArgs&);
void table_dot_ref(const TableDotArgs&);

namespace {
constexpr Variant<TableDotFn> kVariants[] = {
#if defined(__x86_64__)
    {Isa::avx512_vnni, table_dot_avx512},
    {Isa::avx2, table_dot_avx2},
#elif defined(__aarch64__)
    {Isa::neon_dotprod, table_dot_neon},
#endif
    {Isa::portable, table_dot_ref},
};
}  // namespace

std::span<const Variant<TableDotFn>> table_dot_variants() { return kVariants; }

}  // namespace espalier
