// Vector versions of the canonical functions, written once over the primitives of a simd_<isa>.h. Included by those only.
// Each line mirrors canonical.h; the test compares the bits.
//
// Primitives (unnamed namespace): Vf, Vi, Vm (floats, int32, mask), kLanes (4, 8 or 16)
//   vload vstore vload_n vstore_n   unaligned; _n touches the first n < kLanes lanes only, reads zeros in the others
//   vset vzero vadd vsub vmul vdiv vsqrt vneg vabs vcopysign
//   vfma(a,b,c) = a·b + c   vfnma(a,b,c) = c − a·b   vmax(a,b) = a > b ? a : b   vmin(a,b) = a < b ? a : b  (b if unordered)
//   vlt veq vge vselect(m,a,b) = m ? a : b
//   viset viadd visub viand vishl<k> visra<k> vbits vfrom_bits vi_to_f
//   vscale(x, n, t)  x·2ⁿ rounded once, where t = n + kRoundMagic
//   vload_half, vload_half_n (fp16), vload_i8, vload_i8_n, sum16(const Vf (&)[16 / kLanes])
#pragma once

#include "kernels/math/constants.h"

namespace espalier {
namespace {

inline Vf canonical_exp(Vf x) {
  x = vmin(vset(kExpHigh), vmax(vset(kExpLow), x));  // bounds first: a NaN in x stays
  const Vf t = vfma(x, vset(kLog2E), vset(kRoundMagic));
  const Vf n = vsub(t, vset(kRoundMagic));
  Vf r = vfnma(n, vset(kLn2High), x);
  r = vfnma(n, vset(kLn2Low), r);
  Vf p = vfma(vset(kExpP[4]), r, vset(kExpP[3]));
  p = vfma(p, r, vset(kExpP[2]));
  p = vfma(p, r, vset(kExpP[1]));
  p = vfma(p, r, vset(kExpP[0]));
  p = vfma(p, r, vset(1.0f));
  p = vfma(p, r, vset(1.0f));
  return vscale(p, n, t);
}

inline Vf canonical_log(Vf x) {
  const Vi root = viset(0x3f3504f3);  // bits of sqrt ½
  const Vm subnormal = vlt(x, vset(0x1p-126f));
  const Vi bits = visub(vbits(vselect(subnormal, vmul(x, vset(0x1p23f)), x)), root);
  const Vf e = vsub(vi_to_f(visra<23>(bits)), vselect(subnormal, vset(23.0f), vzero()));
  const Vf f = vsub(vfrom_bits(viadd(viand(bits, viset(0x7fffff)), root)), vset(1.0f));
  Vf p = vset(kLogP[7]);
  for (int i = 6; i >= 0; --i) p = vfma(p, f, vset(kLogP[i]));
  p = vfma(p, f, vset(-0.5f));
  const Vf small = vfma(e, vset(kLn2LowShort), vmul(vmul(f, f), p));
  Vf y = vfma(e, vset(kLn2HighShort), vadd(f, small));
  const Vf inf = vset(__builtin_inff());
  y = vselect(veq(x, inf), inf, y);
  y = vselect(veq(x, vzero()), vset(-__builtin_inff()), y);
  return vselect(vge(x, vzero()), y, vset(__builtin_nanf("")));
}

inline Vf canonical_tanh(Vf x) {
  const Vf t = vabs(x);
  const Vf z = vmul(t, t);
  Vf p = vset(kTanhP[4]);
  for (int i = 3; i >= 0; --i) p = vfma(p, z, vset(kTanhP[i]));
  const Vf small = vfma(vmul(t, z), p, t);
  const Vf large = vsub(vset(1.0f), vdiv(vset(2.0f), vadd(canonical_exp(vadd(t, t)), vset(1.0f))));
  return vcopysign(vselect(vlt(t, vset(kTanhSmall)), small, large), x);
}

inline Vf canonical_sigmoid(Vf x) { return vdiv(vset(1.0f), vadd(vset(1.0f), canonical_exp(vneg(x)))); }
inline Vf canonical_silu(Vf x) { return vdiv(x, vadd(vset(1.0f), canonical_exp(vneg(x)))); }

}  // namespace
}  // namespace espalier
