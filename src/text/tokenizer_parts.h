// What the readers of tokenizer files hand to Tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_added.h"

namespace espalier {

struct TokenizerParts {
  BpeModel bpe;
  PreTokenizer pre_tokenizer;
  bool nfc = false;
  std::vector<AddedToken> added;  // in the file's order; ids and contents all different
  std::vector<int32_t> prefix;    // ids in front of raw text
  int32_t bos = -1;
  std::vector<int32_t> eos;
};

}  // namespace espalier
