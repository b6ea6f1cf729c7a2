// The text side of a model alone: tokenizer and chat format, no weights. For tokenize, render, and the opening of an engine.
#pragma once

#include <optional>
#include <string>

#include "engine/chat_format.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace espalier {

Result<Tokenizer> open_tokenizer(const Checkpoint& checkpoint);

struct TextModel {
  Tokenizer tokenizer;
  std::optional<ChatFormat> chat;
  std::string no_chat;  // why chat is refused, where it is
};
// A folder that may hold nothing but the tokenizer's files, or a .gguf.
Result<TextModel> open_text_model(const std::string& path);

}  // namespace espalier
