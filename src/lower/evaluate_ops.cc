#include "lower/evaluate_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"

namespace espalier::evaluating {
namespace {

float to_f16(float x) { return f16_to_f32(f32_to_f16(x)); }

// Strip of at most 16 columns of one row. The order of the sum is that of k whatever the strip.
template <typename Sum, bool kRounds>
void strip(const float* a, const float* b, float* out, size_t k, size_t n, size_t width) {
  Sum sum[16] = {};
  for (size_t i = 0; i < k; ++i) {
    const float x = a[i];
    const float* row = b + i * n;
    if (width == 16 && !kRounds)
      for (size_t j = 0; j < 16; ++j) sum[j] += static_cast<Sum>(x) * static_cast<Sum>(row[j]);
    else
      for (size_t j = 0; j < width; ++j) {
        if (kRounds) sum[j] = static_cast<Sum>(to_f16(static_cast<float>(sum[j]) + to_f16(x * row[j])));
        else sum[j] += static_cast<Sum>(x) * static_cast<Sum>(row[j]);
      }
  }
  for (size_t j = 0; j < width; ++j) out[j] = static_cast<float>(sum[j]);
}

template <typename Sum, bool kRounds>
void multiply_rows(const Product& p, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const size_t batch = r / p.m, row = r % p.m;
    const float* a = p.a + (p.a_batch[batch] * p.m + row) * p.k;
    const float* b = p.b + p.b_batch[batch] * p.k * p.n;
    for (size_t c = 0; c < p.n; c += 16) strip<Sum, kRounds>(a, b + c, p.out + r * p.n + c, p.k, p.n, std::min<size_t>(16, p.n - c));
  }
}

// Elements between two neighbours of each axis; 0 where the extent is 1 and the output's is not.
std::vector<size_t> strides_in(const Shape& shape, const Shape& out) {
  std::vector<size_t> s(shape.size());
  size_t n = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    s[i] = shape[i] == 1 && out[i] != 1 ? 0 : n;
    n *= static_cast<size_t>(shape[i]);
  }
  return s;
}

// Calls fn(offset of a, offset of b, offset of out) for each run of the last axis.
template <typename Fn>
void for_each_run(const Shape& out, const std::vector<size_t>& a, const std::vector<size_t>& b, Fn fn) {
  const size_t axes = out.size() - 1;
  std::vector<int32_t> at(axes, 0);
  size_t pa = 0, pb = 0, po = 0;
  for (;;) {
    fn(pa, pb, po);
    po += static_cast<size_t>(out.back());
    size_t i = axes;
    while (i-- > 0) {
      pa += a[i];
      pb += b[i];
      if (++at[i] < out[i]) break;
      pa -= a[i] * static_cast<size_t>(out[i]);
      pb -= b[i] * static_cast<size_t>(out[i]);
      at[i] = 0;
    }
    if (i == static_cast<size_t>(-1)) return;
  }
}

template <typename Fn>
void broadcast(View a, View b, const Shape& shape, float* out, Fn fn) {
  const std::vector<size_t> sa = strides_in(*a.shape, shape), sb = strides_in(*b.shape, shape);
  const size_t n = static_cast<size_t>(shape.back());
  for_each_run(shape, sa, sb, [&](size_t pa, size_t pb, size_t po) {
    for (size_t i = 0; i < n; ++i) out[po + i] = fn(a.data[pa + i * sa.back()], b.data[pb + i * sb.back()]);
  });
}

struct Axes {
  size_t outer, length, inner;
};
Axes split(const Shape& shape, int32_t axis) {
  Axes a{1, static_cast<size_t>(shape[static_cast<size_t>(axis)]), 1};
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i < static_cast<size_t>(axis)) a.outer *= static_cast<size_t>(shape[i]);
    if (i > static_cast<size_t>(axis)) a.inner *= static_cast<size_t>(shape[i]);
  }
  return a;
}

// One lane along the axis: values at x[i * step].
struct Lane {
  const float* x;
  size_t length, step;
  size_t best() const {
    size_t at = 0;
    for (size_t i = 1; i < length; ++i)
      if (x[i * step] > x[at * step]) at = i;
    return at;
  }
  template <typename Sum>
  float sum() const {
    Sum s = 0;
    for (size_t i = 0; i < length; ++i) s += static_cast<Sum>(x[i * step]);
    return static_cast<float>(s);
  }
  // The quotient in the sum's own type: rounded once.
  template <typename Sum>
  float mean() const {
    Sum s = 0;
    for (size_t i = 0; i < length; ++i) s += static_cast<Sum>(x[i * step]);
    return static_cast<float>(s / static_cast<Sum>(length));
  }
  template <typename Sum>
  void softmax(float* out) const {
    const float largest = x[best() * step];
    Sum s = 0;
    for (size_t i = 0; i < length; ++i) {
      const Sum e = static_cast<Sum>(std::exp(static_cast<double>(x[i * step] - largest)));
      out[i * step] = static_cast<float>(e);
      s += e;
    }
    for (size_t i = 0; i < length; ++i) out[i * step] = static_cast<float>(static_cast<Sum>(out[i * step]) / s);
  }
};

}  // namespace

void multiply(const Product& p, Arithmetic arithmetic, size_t begin, size_t end) {
  if (arithmetic == Arithmetic::f32) multiply_rows<double, false>(p, begin, end);
  else if (arithmetic == Arithmetic::f16) multiply_rows<float, false>(p, begin, end);
  else multiply_rows<float, true>(p, begin, end);
}

void binary(Primitive kind, View a, View b, const Shape& shape, float* out) {
  switch (kind) {
    case Primitive::add: return broadcast(a, b, shape, out, [](float x, float y) { return x + y; });
    case Primitive::sub: return broadcast(a, b, shape, out, [](float x, float y) { return x - y; });
    case Primitive::mul: case Primitive::dequantise: return broadcast(a, b, shape, out, [](float x, float y) { return x * y; });
    case Primitive::div: return broadcast(a, b, shape, out, [](float x, float y) { return x / y; });
    default: return broadcast(a, b, shape, out, [](float x, float y) { return x > y ? x : y; });
  }
}

void unary(Primitive kind, View x, bool wide, float* out) {
  const size_t n = static_cast<size_t>(elements(*x.shape));
  for (size_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(x.data[i]);
    if (kind == Primitive::exp) out[i] = static_cast<float>(std::exp(v));
    else if (kind == Primitive::rsqrt) out[i] = static_cast<float>(1.0 / std::sqrt(v));
    else if (wide) out[i] = static_cast<float>(1.0 / (1.0 + std::exp(-v)));
    else out[i] = 1.0f / (1.0f + static_cast<float>(std::exp(-v)));
  }
}

void along_axis(Primitive kind, View x, int32_t axis, bool wide, float* out) {
  const Axes a = split(*x.shape, axis);
  for (size_t o = 0; o < a.outer; ++o)
    for (size_t i = 0; i < a.inner; ++i) {
      const size_t first = o * a.length * a.inner + i, one = o * a.inner + i;
      const Lane lane{x.data + first, a.length, a.inner};
      switch (kind) {
        case Primitive::softmax: wide ? lane.softmax<double>(out + first) : lane.softmax<float>(out + first); break;
        case Primitive::reduce_sum: out[one] = wide ? lane.sum<double>() : lane.sum<float>(); break;
        case Primitive::reduce_mean: out[one] = wide ? lane.mean<double>() : lane.mean<float>(); break;
        case Primitive::reduce_max: out[one] = lane.x[lane.best() * lane.step]; break;
        default: out[one] = static_cast<float>(lane.best());
      }
    }
}

void transpose(View x, std::span<const int32_t> order, const Shape& shape, float* out) {
  const std::vector<size_t> in = strides_in(*x.shape, *x.shape);
  std::vector<size_t> s;
  for (int32_t axis : order) s.push_back(in[static_cast<size_t>(axis)]);
  const size_t n = static_cast<size_t>(shape.back());
  for_each_run(shape, s, s, [&](size_t from, size_t, size_t to) {
    for (size_t i = 0; i < n; ++i) out[to + i] = x.data[from + i * s.back()];
  });
}

void copy_axis(View x, int32_t from, int32_t length, int32_t axis, int32_t to, const Shape& shape, float* out) {
  const Axes in = split(*x.shape, axis), whole = split(shape, axis);
  const size_t run = static_cast<size_t>(length) * in.inner;
  for (size_t o = 0; o < in.outer; ++o)
    std::copy_n(x.data + (o * in.length + static_cast<size_t>(from)) * in.inner, run, out + (o * whole.length + static_cast<size_t>(to)) * in.inner);
}

std::vector<float> int8_rows(View x) {
  const size_t rows = static_cast<size_t>(x.shape->back()), n = static_cast<size_t>(elements(*x.shape));
  std::vector<float> largest(rows), out(x.data, x.data + n);
  for (size_t i = 0; i < n; ++i) largest[i % rows] = std::max(largest[i % rows], std::fabs(out[i]));
  for (size_t i = 0; i < n; ++i) {
    const float step = largest[i % rows] / 127.0f;
    out[i] = step == 0 ? 0 : step * std::nearbyint(out[i] / step);
  }
  return out;
}

void round_f16(std::span<float> values, float flush_below, RangeCount& count) {
  count.values += static_cast<int64_t>(values.size());
  for (float& v : values) {
    const float size = std::fabs(v);
    float r = to_f16(v);
    if (std::fabs(r) < flush_below) r = std::copysign(0.0f, v);
    if (size > count.largest) count.largest = size;
    count.overflows += std::isinf(r) && !std::isinf(v);
    count.flushed += r == 0 && v != 0;
    v = r;
  }
}

}  // namespace espalier::evaluating
