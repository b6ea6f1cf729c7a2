// The frame that every quantize variant shares. Included inside an unnamed namespace, so that each variant keeps its own copy
// with its own flags. The variant provides
//     void rotate(float* x, uint32_t n)                      block Hadamard in place, n a multiple of 64, at most 128
//     uint32_t largest_bits(const float* x, uint32_t n)      max of the bit patterns of |x|: orders like the values, NaN on top
//     int32_t write_codes(const float* x, uint32_t n, float inverse, int8_t* dst, size_t step)
//         code rne(x * inverse) of inputs i at dst[i / 4 * step + i % 4]; gives their sum. x is 0 from n to the next 16
// and, where it defines QUANTIZE_WHOLE_SPAN, the same for a group that is a whole span, without leaving its registers:
//     void load_span(const float* src, bool rotated, Span& x), uint32_t largest_bits(const Span& x),
//     int32_t write_codes(const Span& x, float inverse, int8_t* dst, size_t step)

constexpr uint32_t kSpan = 128;  // every group size and the Hadamard block divide it

struct RowPlace {
  size_t first;   // first row of the tile
  uint32_t rows;  // of the tile
  uint32_t lane;  // this row in it
};

RowPlace place_of(const QuantizedRows& v, uint32_t row) {
  const uint32_t base = v.n_rows / v.n_tiles, wide = v.n_rows % v.n_tiles;
  if (row < wide * (base + 1)) return {row - row % (base + 1), base + 1, row % (base + 1)};
  const uint32_t past = row - wide * (base + 1);
  return {row - past % base, base, past % base};
}

struct GroupCodes {
  float scale;
  int32_t sum;
};

#if defined(QUANTIZE_WHOLE_SPAN)
GroupCodes quantize_span(const float* src, bool rotated, int8_t* dst, size_t step) {
  Span x;
  load_span(src, rotated, x);
  const uint32_t bits = largest_bits(x);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  const bool finite = bits < 0x7f800000u;
  if (!finite || largest < 0x1p-100f) {
    for (uint32_t i = 0; i < kSpan; i += 4) __builtin_memset(dst + i / 4 * step, 0, 4);
    return {finite ? 0.0f : __builtin_nanf(""), 0};
  }
  return {largest / 127.0f, write_codes(x, 127.0f / largest, dst, step)};
}
#endif

GroupCodes quantize_group(const float* x, uint32_t n, int8_t* dst, size_t step) {
  const uint32_t bits = largest_bits(x, n);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  const bool finite = bits < 0x7f800000u;
  if (!finite || largest < 0x1p-100f) {
    for (uint32_t i = 0; i < n; i += 4) __builtin_memset(dst + i / 4 * step, 0, 4);
    return {finite ? 0.0f : __builtin_nanf(""), 0};
  }
  return {largest / 127.0f, write_codes(x, n, 127.0f / largest, dst, step)};
}

void keep_group(const QuantizedRows& v, size_t g, const GroupCodes& made) {
  v.scales[g] = made.scale;
  v.sums[g] = static_cast<float>(made.sum);
  v.corrections[g] = -128 * made.sum;
}

void quantize_row(const QuantizedRows& v, const float* src, uint32_t row) {
  const RowPlace at = place_of(v, row);
  const size_t step = size_t{at.rows} * 4;
  int8_t* codes = v.codes + at.first * v.stride + at.lane * 4;
  size_t g = at.first * v.groups + at.lane;
  alignas(64) float x[kSpan];
  for (uint32_t first = 0; first < v.cols; first += kSpan) {
    const uint32_t n = v.cols - first < kSpan ? v.cols - first : kSpan;
#if defined(QUANTIZE_WHOLE_SPAN)
    if (n == kSpan && v.group == kSpan) {
      keep_group(v, g, quantize_span(src + first, v.hadamard != 0, codes + first / 4 * step, step));
      g += at.rows;
      continue;
    }
#endif
    __builtin_memcpy(x, src + first, n * sizeof(float));
    if (n < kSpan) __builtin_memset(x + n, 0, (kSpan - n) * sizeof(float));
    if (v.hadamard != 0) rotate(x, n);
    for (uint32_t i = 0; i < n; i += v.group, g += at.rows) {
      const uint32_t in_group = n - i < v.group ? n - i : v.group;
      keep_group(v, g, quantize_group(x + i, in_group, codes + (first + i) / 4 * step, step));
    }
  }
  if (v.padded_cols - v.cols >= 4) __builtin_memset(codes + (v.padded_cols - 4) / 4 * step, 0, 4);
}

void quantize_rows(const QuantizeArgs& args) {
  for (uint32_t r = args.row_begin; r < args.row_end; r++) quantize_row(*args.dst, args.src + r * args.src_stride, r);
}
