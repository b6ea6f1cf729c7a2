// Stop strings over text that arrives in pieces.
//
// StopStrings is immutable, cheap to copy and thread-safe; a StopMatcher belongs to one answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/status.h"

namespace espalier {

class StopStrings {
 public:
  // Fails for a stop string that is empty (it would stop everything) or not UTF-8 (it never would), and for more than 4 MiB of
  // them together.
  static Result<StopStrings> create(const std::vector<std::string>& stops);
  bool empty() const;

 private:
  friend class StopMatcher;
  struct Automaton;
  explicit StopStrings(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {}
  std::shared_ptr<const Automaton> automaton_;
};

class StopMatcher {
 public:
  explicit StopMatcher(StopStrings stops) : stops_(std::move(stops)) {}

  struct Step {
    std::string text;            // may be emitted now: no stop string can begin in it
    std::optional<size_t> stop;  // index of the stop string that ended the answer; `text` ends right before it
  };
  // One piece, usually one token's text. Of the stop strings that are complete after it the one that begins first ends
  // the answer, of several that begin there the longest. Linear in the piece, whatever the number of stop strings.
  // Requires: not stopped.
  Step push(std::string_view piece);
  // The end of an answer without a stop: what was held back.
  std::string flush();
  // Bytes that a stop string may still begin in.
  size_t held() const { return held_.size(); }

 private:
  StopStrings stops_;
  uint32_t node_ = 0;
  std::string held_;
};

}  // namespace espalier
