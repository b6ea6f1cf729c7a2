// Teacher forcing: what the model gives each token of a text.
#pragma once

#include "engine/engine_impl.h"

namespace espalier {

// One entry for each token but the first. Fails: fewer than two tokens, ids outside the vocabulary, a text longer than the
// context (both numbers).
Result<std::vector<Score>> score_tokens(Engine::Impl& engine, std::span<const int32_t> ids, int32_t alternatives,
                                        const std::function<bool(int64_t done, int64_t total)>& on_progress);

}  // namespace espalier
