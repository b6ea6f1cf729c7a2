// Bytes of tokens -> text that never splits a character.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// Each maximal part of an ill-formed sequence becomes one U+FFFD (Unicode 3.9, as Python's errors="replace").
std::string replace_invalid_utf8(std::string_view bytes);

// The same over pieces: whatever the cuts, the joined results equal replace_invalid_utf8 of the joined pieces. One
// stream for each answer; not thread-safe.
class Utf8Stream {
 public:
  // All text that is now complete. At most three bytes, the begin of a character, stay behind.
  std::string push(std::string_view bytes);
  enum class Tail { drop, replace };
  // Ends the stream: an unfinished character is dropped (an answer cut by a limit) or becomes U+FFFD.
  std::string flush(Tail tail);
  std::string_view pending() const { return pending_; }

 private:
  std::string pending_;
};

}  // namespace espalier
