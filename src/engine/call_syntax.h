// Calls as models write them: a Python list of calls with keyword arguments, or JSON objects.
//
//   [web_search(query='a b', n=5), ping()]         names may be dotted; brackets may be left out round one call
//   [{"name": "ping", "arguments": {}}]            one object or a list; "parameters" is taken for "arguments"
//
// Values are Python literals (either kind of quotes, escapes, True, False, None, tuples as arrays) or JSON ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "espalier/status.h"

namespace espalier {

struct WrittenCall {
  std::string name;
  Value arguments;  // an object
};

// All of the text, white space aside, or a status that says where it ends to be one. At least one call. Nesting is bounded.
Result<std::vector<WrittenCall>> parse_calls(std::string_view text);

// Whether `tools` (OpenAI's array, or null) offers a tool of that name that knows all of these arguments.
bool is_offered(const Value& tools, const WrittenCall& call);

}  // namespace espalier
