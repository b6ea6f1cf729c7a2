// Constants of the canonical elementary functions: scalar definition and vector versions read the same numbers.
// Polynomials are own minimax fits (relative weight, coefficients rounded to fp32), lowest power first.
#pragma once

namespace espalier {

// exp: n = rne(x·log2 e), r = x − n·ln 2 in two parts, 1 + r + r²·P(r), then × 2ⁿ with one rounding.
constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2High = 0x1.62e43p-1f;  // ln 2 rounded to fp32; n·kLn2High is exact inside an fma
constexpr float kLn2Low = -0x1.05c61p-29f;
constexpr float kRoundMagic = 0x1.8p23f;  // t + magic − magic = rne(t), and the low bits of t + magic hold it
constexpr float kExpHigh = 89.0f;         // above: +inf by the scaling itself
constexpr float kExpLow = -104.0f;        // below: 0 by the scaling itself
constexpr float kExpP[5] = {0x1.fffffcp-2f, 0x1.55549p-3f, 0x1.5558f6p-5f, 0x1.123a8ep-7f, 0x1.6a2318p-10f};

// log: x = m·2^e with m in [sqrt ½, sqrt 2), f = m − 1 (exact): f − f²/2 + f³·P(f) + e·ln 2 in two parts.
constexpr float kSqrtHalf = 0x1.6a09e6p-1f;
constexpr float kLn2HighShort = 0x1.62e4p-1f;  // 16 bits, so e times it is exact
constexpr float kLn2LowShort = 0x1.7f7d1cp-20f;
constexpr float kLogP[8] = {0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a008p-3f,  -0x1.547244p-3f,
                            0x1.22da1ap-3f, -0x1.0d8546p-3f, 0x1.055b82p-3f, -0x1.38b5a2p-4f};

// tanh: |x| < 0.625: x + x³·P(x²); else 1 − 2 ÷ (exp(2|x|) + 1), with the sign of x.
constexpr float kTanhSmall = 0.625f;
constexpr float kTanhP[5] = {-0x1.555532p-2f, 0x1.110726p-3f, -0x1.b83c5ap-5f, 0x1.52269cp-6f, -0x1.75e1ccp-8f};

}  // namespace espalier
