#include "kernels/math/precise.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace espalier {
namespace {

constexpr double kMagic = 0x1.8p52;  // t + magic − magic = rne(t)

// n·part is exact for |n| < 2^31 by the short parts: 22 bits each of π/2, then the rest.
constexpr double kHalfPi1 = 0x1.921fbp+0;
constexpr double kHalfPi2 = 0x1.5110bp-22;
constexpr double kHalfPi3 = 0x1.18469898cc517p-44;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// ln 2: 32 bits, then the rest.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep+0;

double power_of_two(int64_t n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

// sum of x^k · sign^(k/2) / k! for k = first, first + 2, …, last, from the small end (Taylor; the remainder is below 2^-58).
double alternating(double x, int first, int last) {
  const double z = x * x;
  double sum = 1.0;
  for (int k = last; k > first; k -= 2) sum = 1.0 - z / static_cast<double>(k * (k - 1)) * sum;
  return first == 1 ? x * sum : sum;
}

}  // namespace

double precise_exp(double x) {
  if (x > 700.0) return std::numeric_limits<double>::infinity();
  if (x < -700.0) return 0.0;
  const double n = (x * kLog2E + kMagic) - kMagic;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1.0;
  for (int k = 14; k > 0; --k) sum = 1.0 + r / static_cast<double>(k) * sum;
  return sum * power_of_two(static_cast<int64_t>(n));
}

double precise_log(double x) {
  const uint64_t offset = 0x3fe6a09e667f3bcd;  // sqrt ½
  const uint64_t bits = std::bit_cast<uint64_t>(x) - offset;
  const double e = static_cast<double>(static_cast<int64_t>(bits) >> 52);
  const double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) + offset);
  // log m = 2 artanh s, s = (m − 1) ÷ (m + 1), |s| < 0.172
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double sum = 0.0;
  for (int k = 23; k > 1; k -= 2) sum = z * (1.0 / static_cast<double>(k) + sum);
  return e * kLn2High + (2.0 * s + (2.0 * s * sum + e * kLn2Low));
}

SinCos precise_sincos(float value) {
  const double x = static_cast<double>(value);
  const double n = (x * kTwoOverPi + kMagic) - kMagic;
  const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
  const double s = alternating(r, 1, 19), c = alternating(r, 0, 18);
  switch (static_cast<int64_t>(n) & 3) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}

}  // namespace espalier
