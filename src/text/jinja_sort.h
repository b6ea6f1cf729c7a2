// Stable order of n things by a comparison that may be no strict order (NaN) and may throw: a plain merge sort, which
// stays in bounds whatever the comparison says. (std::sort does not.)
#pragma once

#include <cstddef>
#include <vector>

namespace espalier::jinja {

template <typename Less>
std::vector<size_t> stable_order(size_t n, Less less) {
  std::vector<size_t> order(n), merged(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t lo = 0; lo < n; lo += 2 * width) {
      const size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
      size_t a = lo, b = mid;
      for (size_t k = lo; k < hi; ++k) {
        const bool take_b = a == mid || (b < hi && less(order[b], order[a]));
        merged[k] = order[take_b ? b++ : a++];
      }
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace espalier::jinja
