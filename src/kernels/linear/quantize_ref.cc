// Activation quantisation, portable: the definition of its bits.
#include "kernels/linear/quantize.h"

namespace espalier {
namespace {

void rotate(float* x, uint32_t n) { block_hadamard(x, n); }

uint32_t largest_bits(const float* x, uint32_t n) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// rne for |x| <= 2^21: in the sum's range the last bit has the value 1.
int32_t round_to_int(float x) {
  const float shifted = x + 12582912.0f;
  int32_t bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  return bits - 0x4b400000;
}

int32_t write_codes(const float* x, uint32_t n, float inverse, int8_t* dst, size_t step) {
  int32_t sum = 0;
  for (uint32_t i = 0; i < n; i += 4)
    for (uint32_t k = 0; k < 4; k++) {
      const int32_t code = round_to_int(x[i + k] * inverse);
      dst[i / 4 * step + k] = static_cast<int8_t>(code);
      sum += code;
    }
  return sum;
}

#include "kernels/linear/quantize_rows.inl"

}  // namespace

void quantize_portable(const QuantizeArgs& args) { quantize_rows(args); }

}  // namespace espalier
