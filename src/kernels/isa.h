// Which instruction set a kernel variant needs, and which this machine has.
//
// A variant list is a plain array in the op's own .cc, best first, `portable` last. All variants of an op give the same
// bits (canonical arithmetic), so the choice is one of speed only. ESPALIER_ISA=<name> caps the choice for the whole
// process; a name that the machine lacks is refused when the CPU unit is opened (forced_isa()).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "espalier/status.h"

namespace espalier {

enum class Isa { portable, avx2, avx_vnni, avx512_vnni, neon_dotprod, amx_int8 };

// "portable", "avx2", "avx_vnni", "avx512_vnni", "amx_int8", "neon_dotprod": the values of ESPALIER_ISA and of `kernels` in JSON.
const char* isa_name(Isa isa);
// True if this processor and operating system can run the variant. portable always.
bool isa_available(Isa isa);
// Every available one, best first (amx_int8, avx512_vnni, avx_vnni, avx2, portable or neon_dotprod, portable). Tests iterate it.
std::vector<Isa> available_isas();
// The best available one, or the one that ESPALIER_ISA names. Unknown or unavailable names are refused with the list.
Result<Isa> chosen_isa();

template <typename Fn>
struct Variant {
  Isa isa;
  Fn fn;
};

// The variant of a list (best first, portable last) to use under `isa`: the first whose own isa is not above it.
// avx_vnni may use avx2 variants; avx512_vnni may use avx_vnni and avx2 ones; amx_int8 all of them. Requires: the list ends in portable.
bool isa_may_run(Isa chosen, Isa variant);
template <typename Fn>
Fn pick(std::span<const Variant<Fn>> list, Isa chosen) {
  for (const Variant<Fn>& v : list)
    if (isa_may_run(chosen, v.isa)) return v.fn;
  return list.back().fn;
}

}  // namespace espalier
