// OpenAI's messages and tools, checked and put into the form that chat templates expect.
//
// Every refusal is one sentence that begins with the place ("messages[2].content: expected ...") and carries it as the
// status's field. Rules
//   content   null, absent (with calls, reasoning or as a null) and "" are the same. Text parts become one string, without
//             a separator, or stay parts where the template takes nothing else. Other parts are refused by name.
//   roles     system, developer, user, assistant, tool. developer is system for a template that doesn't know it. A system
//             message that isn't the first is refused, unless the template shows it where it stands.
//   calls     only in assistant's messages; arguments given as JSON text become objects. Keys that are null are dropped.
//   thoughts  reasoning_content, thinking and reasoning are one thing: the first that is there is given under the first two.
//   tools     reach the template whole, as they came.
#pragma once

#include "base/value.h"
#include "espalier/status.h"
#include "text/template.h"

namespace espalier {

struct ChatBody {
  Value messages;  // an array
  Value tools;     // an array, or null
  Value kwargs;    // an object, or null: the body's chat_template_kwargs
};

// Requires nothing of `body`: any JSON value. Keys other than messages, tools and chat_template_kwargs are not looked at.
Result<ChatBody> read_chat_body(const Value& body, const TemplateCapabilities& capabilities);
Result<Value> normalise_chat_messages(const Value& messages, const TemplateCapabilities& capabilities);
// null and [] are "no tools" (null). A tool is {"type": "function", "function": {...}} or the function alone.
Result<Value> check_tools(const Value& tools);

// Turns thinking on or off through the template's own switch, by adding it to `kwargs`. Refused (unsupported) where the
// template has none and so would go on as before.
Status set_thinking(bool on, const TemplateCapabilities& capabilities, Value& kwargs);

}  // namespace espalier
