// A model's way to chat: its template for prompts, and what its answers are made of.
//
// Immutable; rendering is safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "espalier/request.h"
#include "espalier/status.h"
#include "text/template.h"
#include "text/tool_calls.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace espalier {

struct RenderedChat {
  MarkedText text;
  bool in_thought = false;  // the answer starts inside a thought
  std::vector<std::string> warnings;
};

class ChatFormat {
 public:
  // Fails where there is no template, or one that cannot be read: chat is refused, never guessed.
  static Result<ChatFormat> make(const Checkpoint& checkpoint, const Tokenizer& tokenizer);

  // `messages`: an array as OpenAI clients send it; `tools`: an array or null; `kwargs`: an object or null. The status's field
  // begins with "messages" or "tools".
  Result<RenderedChat> render(const Value& messages, const Value& tools, const Value& kwargs, bool generation_prompt = true) const;

  // The control token that the template puts behind an assistant's turn; -1: none.
  int32_t end_id() const { return end_id_; }
  const TemplateCapabilities& capabilities() const { return capabilities_; }
  // How answers to a prompt are written.
  OutputFormat output(bool in_thought) const;
  // The tokens that mark calls and thoughts, sorted.
  const std::vector<int32_t>& marker_ids() const { return marker_ids_; }

 private:
  explicit ChatFormat(ChatTemplate chat_template) : template_(std::move(chat_template)) {}
  void find_end(const Tokenizer& tokenizer);
  void find_markers(const Tokenizer& tokenizer);

  ChatTemplate template_;
  TemplateCapabilities capabilities_;
  OutputFormat output_;
  std::vector<int32_t> marker_ids_;
  std::string bos_, eos_;
  int32_t end_id_ = -1;
};

}  // namespace espalier
