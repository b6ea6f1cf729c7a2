// Pairs of words, "rows 4096 inputs 256 ...": how a packed file describes each matrix in its metadata. Readable without a
// JSON library.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace espalier {

// The word behind `key`; empty when there is none. Keys stand at even places.
inline std::string_view packed_word(std::string_view words, std::string_view key) {
  const auto next = [&] {
    const size_t space = words.find(' ');
    const std::string_view word = words.substr(0, space);
    words = space == std::string_view::npos ? std::string_view{} : words.substr(space + 1);
    return word;
  };
  while (!words.empty()) {
    const std::string_view found = next(), value = next();
    if (found == key) return value;
  }
  return {};
}

inline std::optional<uint64_t> packed_number(std::string_view words, std::string_view key) {
  const std::string_view word = packed_word(words, key);
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
  if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return n;
}

}  // namespace espalier
