#include "kernels/isa.h"

#include <cstdlib>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace espalier {
namespace {

constexpr Isa kBestFirst[] = {Isa::amx_int8, Isa::avx512_vnni, Isa::avx_vnni, Isa::avx2, Isa::neon_dotprod, Isa::portable};

#if defined(__x86_64__)
uint64_t enabled_state() {  // XCR0: what the operating system saves
  uint32_t a = 0, d = 0;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (uint64_t{d} << 32) | a;
}

// The kernel gives tile registers to a process that asks; threads started later have them too.
bool tiles_granted() {
#if defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

bool x86_available(Isa isa) {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
  const bool osxsave = c >> 27 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
  if (!osxsave || !fma || !f16c || (enabled_state() & 6) != 6) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool avx2 = b >> 5 & 1;
  if (isa == Isa::amx_int8) {
    const bool tile = d >> 24 & 1, int8 = d >> 25 & 1;
    return tile && int8 && (enabled_state() >> 17 & 3) == 3 && x86_available(Isa::avx512_vnni) && tiles_granted();
  }
  if (isa == Isa::avx2) return avx2;
  if (isa == Isa::avx512_vnni) {
    const bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1, vnni = c >> 11 & 1;
    return avx2 && f && dq && bw && vl && vnni && (enabled_state() & 0xe6) == 0xe6;
  }
  uint32_t a1 = 0, b1 = 0, c1 = 0, d1 = 0;
  return avx2 && __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) && (a1 >> 4 & 1);
}
#endif

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::portable: return "portable";
    case Isa::avx2: return "avx2";
    case Isa::avx_vnni: return "avx_vnni";
    case Isa::avx512_vnni: return "avx512_vnni";
    case Isa::neon_dotprod: return "neon_dotprod";
    case Isa::amx_int8: return "amx_int8";
  }
  return "?";
}

bool isa_available(Isa isa) {
  if (isa == Isa::portable) return true;
#if defined(__x86_64__)
  return isa != Isa::neon_dotprod && x86_available(isa);
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kAsimdDp = 1UL << 20;  // HWCAP_ASIMDDP
  return isa == Isa::neon_dotprod && (getauxval(AT_HWCAP) & kAsimdDp) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  return isa == Isa::neon_dotprod;
#else
  return false;
#endif
}

std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (Isa isa : kBestFirst)
    if (isa_available(isa)) out.push_back(isa);
  return out;
}

Result<Isa> chosen_isa() {
  const std::vector<Isa> have = available_isas();
  const char* forced = std::getenv("ESPALIER_ISA");
  if (forced == nullptr || *forced == '\0') return have.front();
  std::string names;
  for (Isa isa : have) {
    if (std::string_view(forced) == isa_name(isa)) return isa;
    names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  return invalid("ESPALIER_ISA is '" + std::string(forced) + "', and this machine has " + names, "ESPALIER_ISA");
}

bool isa_may_run(Isa chosen, Isa variant) {
  if (variant == Isa::portable || variant == chosen) return true;
  if (chosen == Isa::amx_int8 && variant == Isa::avx512_vnni) return true;
  if (chosen == Isa::avx512_vnni || chosen == Isa::amx_int8) return variant == Isa::avx2 || (variant == Isa::avx_vnni && isa_available(variant));
  return chosen == Isa::avx_vnni && variant == Isa::avx2;
}

}  // namespace espalier
