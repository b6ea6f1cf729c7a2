// A chat's messages with the state that has read them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "engine/engine_impl.h"
#include "engine/generation.h"

namespace espalier {

struct Conversation::Impl {
  std::shared_ptr<Engine::Impl> engine;  // outlives the states
  Value tools;
  std::string system;
  Value::Array turns;  // without the system message

  std::unique_ptr<State> state;
  std::unique_ptr<State> drafter;   // the drafter's, beside it; null without one. One that holds something else is not used
  std::unique_ptr<State> snapshot, drafter_snapshot;  // taken before the last answer and before what the template puts in front of it
  std::vector<int32_t> kept;        // the tokens of the text so far; what `state` holds is a prefix of them
  std::atomic<bool> cancelled{false};

  Value messages() const;
  // Tokens of a rendered text, those already read kept as they are, and the state gone back to where they end.
  Result<std::vector<int32_t>> continue_with(const MarkedText& text);
};

// `ids` followed by the tokens of the rest, if the bytes of `ids` are how the text begins; nothing otherwise.
std::optional<std::vector<int32_t>> extend_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids, const MarkedText& text);
// How many of the ids lie wholly within the first `bytes` bytes of their text.
int32_t ids_within(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t bytes);

}  // namespace espalier
