// Added tokens: text of a tokenizer that becomes one id before anything else is split.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/marked_text.h"
#include "text/tokenizer_trie.h"

namespace espalier {

inline constexpr size_t kMaxAddedTokenBytes = 1024;

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // a control token: only template bytes may become it
  bool normalized = false;   // looked for after normalisation
  bool lstrip = false, rstrip = false;  // eats the white space before, behind it
  bool single_word = false;  // not beside a letter, digit or mark
};

// The longest token at the leftmost place first, none overlapping, with the reference's treatment of the flags.
//
// A special token matches where all its bytes are control. Spelled in data alone it is ordinary text and is passed over
// as a whole, as the reference does with encode_special_tokens; spelled across a border it is not seen at all, so data
// cannot swallow the control token beside it.
class AddedTokenSplitter {
 public:
  // `pattern` is what to look for: the content, or its normalised form. Not empty. Of equal patterns the first counts.
  void add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return trie_.empty(); }

  struct Part {
    size_t begin, end;  // bytes
    int32_t id;         // -1: text
  };
  // Appends parts in order; they cover the text but for the white space that tokens ate. Requires: valid UTF-8; runs as
  // in MarkedText, covering the text.
  void split(std::string_view text, std::span<const MarkedText::Run> runs, std::vector<Part>& parts) const;

 private:
  struct Match {
    size_t end = 0;
    const AddedToken* token = nullptr;
  };
  Match longest(std::string_view text, size_t begin, const MarkedText::Run& run) const;

  ByteTrie trie_;  // values index tokens_
  std::vector<AddedToken> tokens_;
};

}  // namespace espalier
