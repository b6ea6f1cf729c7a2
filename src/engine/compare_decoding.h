// `verify`: greedy decoding in two ways, row by row and as one call over the whole text, and where they part.
#pragma once

#include <functional>
#include <optional>

#include "engine/engine_impl.h"

namespace espalier {

inline constexpr int32_t kCompareTokens = 64;

struct DecodingDifference {
  int64_t index = 0;           // in the answer
  int32_t first = 0, second = 0;  // what each way chose
  float gap = 0;               // between the two best logits, in the second way
};
struct DecodingComparison {
  int64_t tokens = 0;
  bool same_bits = false;  // all logits of all rows
  std::optional<DecodingDifference> difference;
};

// The prompt is a question through the template, or a few tokens of plain text where there is none.
Result<DecodingComparison> compare_decoding(Engine::Impl& engine, int32_t tokens,
                                            const std::function<bool(int64_t done, int64_t total)>& on_progress);

}  // namespace espalier
