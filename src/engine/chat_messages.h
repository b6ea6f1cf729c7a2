// OpenAI's messages as chat templates want them.
#pragma once

#include "base/value.h"
#include "espalier/status.h"

namespace espalier {

struct MessageRules {
  bool developer = false;  // the template knows that role; else it is the system
};

// Null and absent content become "", text parts one string, arguments of calls objects. Refused, with the message's number
// and the field "messages": what is no object, an unknown role, content of another type, parts that are no text.
Result<Value> normalise_messages(const Value& messages, const MessageRules& rules);

}  // namespace espalier
