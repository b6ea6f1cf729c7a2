// Test helpers: every variant of a list that this machine can run, and comparison to the bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/isa.h"

namespace espalier {

template <typename Fn, typename Body>
void for_variants(std::span<const Variant<Fn>> variants, Body&& body) {
  for (const Variant<Fn>& variant : variants)
    if (isa_available(variant.isa)) {
      SCOPED_TRACE(isa_name(variant.isa));
      body(variant.fn);
    }
}

// Equal bits; a NaN equals a NaN. Empty is never equal: a test that compared nothing would pass.
inline void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  ASSERT_FALSE(want.empty()) << what;
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &want[i], 4) != 0 && !(got[i] != got[i] && want[i] != want[i])) {
      if (wrong++ == 0) ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", expected " << want[i];
    }
  EXPECT_EQ(wrong, 0u) << what;
}

}  // namespace espalier
