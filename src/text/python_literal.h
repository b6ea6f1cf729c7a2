// Calls and values as models write them in Python's notation:
//
//   [web_search(query='a b', n=5), grocery.order(items=[{"id": 1}]), ping()]
//
// Values: strings with either quotes, tripled too, with Python's and JSON's escapes, neighbours joined; numbers; lists;
// tuples (become arrays); dicts (keys become strings, as json.dumps writes them); True, False, None and true, false, null.
// Nothing is evaluated. Nesting is bounded by kMaxLiteralDepth. Failures name the byte offset.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "espalier/status.h"

namespace espalier {

inline constexpr int kMaxLiteralDepth = 64;

struct PythonCall {
  std::string name;  // may be dotted
  std::vector<Value> positional;
  Value::Object named;      // in the order written, each name once
  size_t begin = 0, end = 0;  // where in the text it stands
};

// One value and nothing behind it, white space aside.
Result<Value> parse_python_literal(std::string_view text);
// A list of calls, or calls without the brackets, separated by commas, semicolons or line ends. At least one.
Result<std::vector<PythonCall>> parse_python_calls(std::string_view text);

}  // namespace espalier
