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
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace espalier {

struct RenderedChat {
  MarkedText text;
  bool in_thought = false;  // the answer starts inside a thought
  std::vector<std::string> warnings;
};

// What stands round the calls of an answer. Without markers nothing is a call.
struct CallMarkers {
  std::string open, close;
  bool in_text = false;  // the tokenizer makes them of ordinary tokens; else they are control tokens and nothing else is one
};

class ChatFormat {
 public:
  // Fails where there is no template, or one that cannot be read: chat is refused, never guessed.
  static Result<ChatFormat> make(const Checkpoint& checkpoint, const Tokenizer& tokenizer);

  // `messages`: an array as OpenAI clients send it; `tools`: an array or null; `kwargs`: an object or null. The status's field
  // is "messages" or "tools".
  Result<RenderedChat> render(const Value& messages, const Value& tools, const Value& kwargs, bool generation_prompt = true) const;

  // The control token that the template puts behind an assistant's turn; -1: none.
  int32_t end_id() const { return end_id_; }
  bool has_reasoning() const { return template_.mentions("</think>"); }
  bool takes_tools() const { return template_.reads("tools"); }
  const CallMarkers& call_markers() const { return markers_; }

 private:
  explicit ChatFormat(ChatTemplate chat_template) : template_(std::move(chat_template)) {}
  void find_end(const Tokenizer& tokenizer);
  void find_markers(const Tokenizer& tokenizer);

  ChatTemplate template_;
  CallMarkers markers_;
  std::string bos_, eos_;
  int32_t end_id_ = -1;
};

// What a part of an answer is.
struct ChatPiece {
  Delta::Kind kind = Delta::Kind::text;
  std::string text;
  ToolCall call;
};

// Sorts the text of one answer into reasoning, text and calls.
class ChatParser {
 public:
  ChatParser(const ChatFormat& format, const Value& tools, bool in_thought);
  ~ChatParser();
  ChatParser(ChatParser&&) noexcept;
  ChatParser& operator=(ChatParser&&) noexcept;

  // What is certain after more text, or after a control token.
  std::vector<ChatPiece> push(std::string_view text);
  std::vector<ChatPiece> push_control(std::string_view spelling);
  // The end: what was held back.
  std::vector<ChatPiece> finish();
  bool has_reasoning() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace espalier
