// Tokens of an answer -> text, reasoning, calls, and the reason why it ended.
//
// Text is handed out as it becomes certain: whole characters, nothing that a stop string may begin in, and no part of a
// call. What was handed out is never taken back, and joined it is what the answer holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat_format.h"
#include "engine/decoder.h"
#include "espalier/request.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace espalier {

struct AnswerRules {
  std::vector<int32_t> end_ids;  // sorted
  std::vector<std::string> stop;
  int64_t max_tokens = 0;
  int64_t logprobs = -1;
  bool is_chat = false;     // reasoning and calls are parsed
  bool in_thought = false;  // the prompt ends inside a thought
  Value tools;              // that the answer may call; null: none
};

class AnswerBuilder {
 public:
  // `chat` may be null where the rules say that this is no chat; both are borrowed.
  static Result<AnswerBuilder> make(const Tokenizer& tokenizer, const ChatFormat* chat, const AnswerRules& rules);

  // Takes a drawn token. True: the answer is complete.
  bool accept(int32_t id, const TokenLogprobs& logprobs, const Callbacks& callbacks);
  // Ends it from outside. Requires: not complete.
  void cancel(const Callbacks& callbacks);
  bool complete() const { return complete_; }
  // Text, reasoning, calls, token_ids, logprobs, finish_reason, stop_text, the parser's warnings. Requires: complete().
  Answer take() &&;

 private:
  AnswerBuilder(const Tokenizer& tokenizer, const ChatFormat* chat, const AnswerRules& rules, StopStrings stops);
  void text(std::string_view piece, const Callbacks& callbacks);
  void end(FinishReason reason, Utf8Stream::Tail tail, const Callbacks& callbacks);
  void deliver(std::string_view certain, const Callbacks& callbacks);
  void hand_out(const std::vector<OutputPiece>& pieces, const Callbacks& callbacks);

  const Tokenizer* tokenizer_;
  AnswerRules rules_;
  StopStrings stops_;
  StopMatcher matcher_;
  Utf8Stream utf8_;
  std::vector<int32_t> marker_ids_;  // tokens that the parser must see as what they are
  std::unique_ptr<OutputParser> parser_;
  Answer answer_;
  bool complete_ = false;
};

}  // namespace espalier
