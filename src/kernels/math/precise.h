// Double-precision exp, log, sine and cosine of our own, with the same bits on every platform: +, −, ×, ÷ only, no libm.
// For tables (RoPE) and other places off the hot path.
//
//   precise_exp   relative error < 2^-51 for |x| <= 700; beyond: 0 or +inf
//   precise_log   relative error < 2^-50 for normal x > 0. Requires: that
//   precise_sin, precise_cos   absolute error < 2^-51 for |x| <= 2^31 given as an fp32 value (its 24 bits make the reduction
//                 exact); relative error < 2^-32 next to a zero
#pragma once

namespace espalier {

double precise_exp(double x);
double precise_log(double x);
struct SinCos {
  double sin, cos;
};
SinCos precise_sincos(float x);

}  // namespace espalier
