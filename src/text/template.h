// Chat templates: Jinja text -> a rendered prompt that knows which bytes the template wrote.
//
// Goals: the same text as transformers' apply_chat_template, byte for byte, for what chat templates use; each failure
// names the template's line; message content can never become a control token; bounded work for any template.
// Non-goals: the rest of jinja2 (inheritance, includes, autoescape, list and dict changes, which the sandbox refuses too).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/value.h"
#include "espalier/status.h"
#include "text/marked_text.h"

namespace espalier {

// A local date and time, as strftime_now sees it.
struct CivilTime {
  int year = 1970, month = 1, day = 1;  // month and day count from 1
  int hour = 0, minute = 0, second = 0;
};
CivilTime local_time_now();

struct TemplateLimits {
  uint64_t steps = 50'000'000;
  uint64_t bytes = uint64_t{512} << 20;  // of all strings and lists that the template makes
};

struct ChatInput {
  Value messages;  // array of messages, as chat.h normalises them
  Value tools;     // array, or null
  bool add_generation_prompt = true;
  Value kwargs;    // further variables of the template (enable_thinking, ...): an object, or null. Data, never control.
  // The tokens' own spelling; empty: undefined in the template.
  std::string bos_token, eos_token, pad_token, unk_token;
  std::optional<CivilTime> now;  // default: the machine's clock
  TemplateLimits limits;
};

// What a template does with its input, found by rendering small conversations once (describe_template).
struct TemplateCapabilities {
  bool system = false;           // a leading system message reaches the text
  bool system_anywhere = false;  // so does one in the middle
  bool developer = false;        // role "developer" is known to the template
  bool tools = false;            // offered tools reach the text
  bool tool_calls = false;       // an assistant turn's tool_calls reach the text
  bool tool_results = false;     // messages of role "tool" reach the text
  bool string_content = false;   // content given as a string reaches the text
  bool part_content = false;     // content given as an array of text parts reaches the text as text
  bool generation_prompt = false;
  bool opens_thought = false;    // the generation prompt ends inside <think>, so the model's output starts in a thought
  bool mentions_thought = false; // the template knows </think>
  std::string thinking_switch;   // the variable that turns thinking on and off; empty: there is none
};

namespace jinja {
struct Tree;
}

// Immutable and cheap to copy; one template may render on several threads at once.
class ChatTemplate {
 public:
  // Fails (corrupt) with "line N: ...".
  static Result<ChatTemplate> parse(std::string source);

  // The role of a message counts as the template's own text if it is one of OpenAI's; everything else in messages, tools
  // and kwargs is data. Fails (invalid_argument) with "chat template, line N: ...".
  Result<MarkedText> render(const ChatInput& input) const;

  // Whether the template reads a variable of that name, and whether any of its texts contains `text`.
  bool reads(std::string_view name) const;
  bool mentions(std::string_view text) const;
  const std::string& source() const { return *source_; }

 private:
  ChatTemplate() = default;
  std::shared_ptr<const std::string> source_;
  std::shared_ptr<const jinja::Tree> tree_;
};

// Cost: some ten small renders.
TemplateCapabilities describe_template(const ChatTemplate& chat_template);

// True if the output that follows this prompt starts inside a thought: the prompt's last text, white space aside, is
// <think> and the template wrote it.
bool ends_in_thought(const MarkedText& prompt);

}  // namespace espalier
