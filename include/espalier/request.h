// What an answer is asked for with, and what comes back. Plain data, free of the engine's internals.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier {

// What stands before the answer. Exactly one of `messages`, `raw` and `ids` is given.
struct Prompt {
  std::string messages;  // JSON: an array of OpenAI chat messages
  std::string tools;     // JSON: an array of OpenAI tools; empty: none
  std::string template_kwargs;  // JSON: an object of further template variables ("enable_thinking"); empty: none
  std::optional<std::string> raw;  // text without a template; the tokenizer's own BOS rule applies
  bool raw_special = false;        // the spelling of a control token in `raw` is that token
  std::vector<int32_t> ids;        // tokens as they are
};

// Absent fields: the model's generation_config, then the engine (temperature 1, nothing else).
struct GenerateOptions {
  std::optional<double> temperature;  // 0: greedy
  std::optional<int64_t> top_k;       // 0: all
  std::optional<double> top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added to its logit
  std::optional<int64_t> max_tokens;  // absent: as many as the context holds; more than that is cut with a warning
  std::vector<std::string> stop;      // the answer ends right before the first of them
  std::optional<uint64_t> seed;       // absent: drawn, and told in the answer
  std::optional<int64_t> logprobs;    // alternatives for each token (0: the token's own only); absent: none at all
  // "auto", "off", "chain:N" (N drafted tokens) or "tree:N" (N rows of a call); absent: as the engine was opened. The text is
  // the same with each of them.
  std::optional<std::string> speculate;
};

enum class FinishReason { stop, tool_calls, length, cancelled };
const char* finish_reason_name(FinishReason reason);  // "stop", "tool_calls", "length", "cancelled"

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  // of the raw logits, before bias, penalties and temperature
  std::vector<std::pair<int32_t, float>> top;
};

struct ToolCall {
  std::string id;         // unique within the answer
  std::string name;
  std::string arguments;  // JSON: an object
};

struct Timings {
  double load_ms = 0;     // of the model
  double prefill_ms = 0;  // until the first token was drawn
  double decode_ms = 0;   // from then on
  double ttft_ms = 0;     // from the request to the first token, tokenizing included
  int64_t prefill_tokens = 0;  // rows of the prompt that ran
  int64_t reused_tokens = 0;   // rows that a kept state held already
  int64_t decode_tokens = 0;   // tokens drawn after the first
};

// What drafting did for an answer. A cycle is one call after the prompt; `rows` counts the drafted ones and the newest token's.
struct SpeculationReport {
  std::string mode;       // "auto", "chain:4", "tree:24"
  int64_t cycles = 0;
  int64_t rows = 0;
  int64_t tokens = 0;     // that the cycles gave
  int64_t accepted = 0;   // drafted tokens that were the model's own
  struct Depth {
    int64_t offered = 0;   // cycles in which a token was drafted there whose parent was right
    int64_t accepted = 0;
  };
  std::vector<Depth> by_depth;  // [0]: right behind the newest token
  struct Source {
    std::string name;      // "ngram", "dspark"
    int64_t drafted = 0;   // rows that it proposed
    int64_t offered = 0;   // those whose parent was right
    int64_t accepted = 0;
  };
  std::vector<Source> by_source;  // a token that two sources name counts for both
  double draft_ms = 0, verify_ms = 0, commit_ms = 0, host_ms = 0;
};

struct Answer {
  std::string text;  // without reasoning and calls
  std::optional<std::string> reasoning;  // absent where the template has none
  std::vector<ToolCall> tool_calls;
  std::vector<int32_t> token_ids;  // without the end token; up to the one that completed a stop string
  std::vector<int32_t> prompt_token_ids;
  FinishReason finish_reason = FinishReason::stop;
  std::optional<std::string> stop_text;  // the stop string that ended it
  std::optional<std::vector<TokenLogprob>> logprobs;  // one for each of token_ids
  uint64_t seed = 0;
  Timings timings;
  std::optional<SpeculationReport> speculation;  // absent when off
  std::vector<std::string> warnings;
};

// A piece of an answer as it grows: text or reasoning (valid UTF-8, never taken back), or a call that is complete.
struct Delta {
  enum class Kind { text, reasoning, tool_call };
  Kind kind = Kind::text;
  std::string_view text;
  const ToolCall* call = nullptr;
};

// Called on the thread that runs the request, between two calls of the model. All are optional.
struct Callbacks {
  std::function<void(const Delta&)> on_delta;
  std::function<void(int64_t done, int64_t total)> on_prefill;  // rows of the prompt
};

}  // namespace espalier
