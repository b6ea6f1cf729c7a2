// One of the best logits of a row.
#pragma once

#include <cstdint>

namespace espalier {

struct TopEntry {
  int32_t id;
  float logit;
  bool operator==(const TopEntry&) const = default;
};

}  // namespace espalier
