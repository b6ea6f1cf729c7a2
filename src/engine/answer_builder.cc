#include "engine/answer_builder.h"

#include <algorithm>

#include "base/check.h"

namespace espalier {

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::tool_calls: return "tool_calls";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
  }
  return "";
}

Result<AnswerBuilder> AnswerBuilder::make(const Tokenizer& tokenizer, const ChatFormat* chat, const AnswerRules& rules) {
  auto stops = StopStrings::create(rules.stop);
  if (!stops.ok()) return Status(stops.status().code(), stops.status().message(), "stop");
  return AnswerBuilder(tokenizer, chat, rules, std::move(stops).value());
}

AnswerBuilder::AnswerBuilder(const Tokenizer& tokenizer, const ChatFormat* chat, const AnswerRules& rules, StopStrings stops)
    : tokenizer_(&tokenizer), rules_(rules), stops_(std::move(stops)), matcher_(stops_) {
  if (rules_.is_chat && chat != nullptr) {
    const OutputFormat format = chat->output(rules_.in_thought);
    if (chat->capabilities().mentions_thought || rules_.in_thought) answer_.reasoning.emplace();
    marker_ids_ = chat->marker_ids();
    parser_ = std::make_unique<OutputParser>(format, rules_.tools);
  }
  if (rules_.logprobs >= 0) answer_.logprobs.emplace();
}

bool AnswerBuilder::accept(int32_t id, const TokenLogprobs& logprobs, const Callbacks& callbacks) {
  ESP_CHECK(!complete_);
  if (std::binary_search(rules_.end_ids.begin(), rules_.end_ids.end(), id)) {
    end(FinishReason::stop, Utf8Stream::Tail::replace, callbacks);
    return true;
  }
  answer_.token_ids.push_back(id);
  if (rules_.logprobs >= 0) {
    TokenLogprob entry{id, logprobs.logprob, {}};
    for (const TopEntry& e : logprobs.top) entry.top.emplace_back(e.id, e.logit);
    answer_.logprobs->push_back(std::move(entry));
  }
  if (std::binary_search(marker_ids_.begin(), marker_ids_.end(), id)) {
    // No character and no stop string reaches across a marker.
    text(utf8_.flush(Utf8Stream::Tail::replace), callbacks);
    if (!complete_) {
      deliver(matcher_.flush(), callbacks);
      matcher_ = StopMatcher(stops_);
      hand_out(parser_->push(tokenizer_->token_bytes(id), true), callbacks);
    }
  } else if (!tokenizer_->is_special(id)) {
    text(utf8_.push(tokenizer_->token_bytes(id)), callbacks);
  }
  if (!complete_ && static_cast<int64_t>(answer_.token_ids.size()) >= rules_.max_tokens)
    end(FinishReason::length, Utf8Stream::Tail::drop, callbacks);
  return complete_;
}

// Whole characters on their way to the stop strings.
void AnswerBuilder::text(std::string_view piece, const Callbacks& callbacks) {
  if (piece.empty()) return;
  StopMatcher::Step step = matcher_.push(piece);
  deliver(step.text, callbacks);
  if (!step.stop) return;
  answer_.stop_text = rules_.stop[*step.stop];
  matcher_ = StopMatcher(stops_);
  utf8_.flush(Utf8Stream::Tail::drop);
  end(FinishReason::stop, Utf8Stream::Tail::drop, callbacks);
}

void AnswerBuilder::cancel(const Callbacks& callbacks) { end(FinishReason::cancelled, Utf8Stream::Tail::drop, callbacks); }

void AnswerBuilder::end(FinishReason reason, Utf8Stream::Tail tail, const Callbacks& callbacks) {
  text(utf8_.flush(tail), callbacks);  // a last U+FFFD may complete a stop string
  if (complete_) return;
  complete_ = true;
  deliver(matcher_.flush(), callbacks);
  if (parser_) {
    hand_out(parser_->finish(), callbacks);
    answer_.warnings = parser_->warnings();
  }
  answer_.finish_reason = reason == FinishReason::stop && !answer_.tool_calls.empty() ? FinishReason::tool_calls : reason;
}

void AnswerBuilder::deliver(std::string_view certain, const Callbacks& callbacks) {
  if (certain.empty()) return;
  if (parser_)
    hand_out(parser_->push(certain), callbacks);
  else
    hand_out({{OutputPiece::Kind::content, std::string(certain), {}}}, callbacks);
}

void AnswerBuilder::hand_out(const std::vector<OutputPiece>& pieces, const Callbacks& callbacks) {
  for (const OutputPiece& piece : pieces) {
    Delta delta{Delta::Kind::text, piece.text, nullptr};
    switch (piece.kind) {
      case OutputPiece::Kind::content: answer_.text += piece.text; break;
      case OutputPiece::Kind::reasoning:
        delta.kind = Delta::Kind::reasoning;
        if (!answer_.reasoning) answer_.reasoning.emplace();
        *answer_.reasoning += piece.text;
        break;
      case OutputPiece::Kind::call:
        delta.kind = Delta::Kind::tool_call;
        answer_.tool_calls.push_back({"call_" + std::to_string(answer_.tool_calls.size()), piece.call.name, piece.call.arguments_json()});
        delta.call = &answer_.tool_calls.back();
        break;
    }
    if (callbacks.on_delta) callbacks.on_delta(delta);
  }
}

Answer AnswerBuilder::take() && {
  ESP_CHECK(complete_);
  return std::move(answer_);
}

}  // namespace espalier
