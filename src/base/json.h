// JSON text <-> Value, through nlohmann-json (confined to json.cc).
#pragma once

#include <string>
#include <string_view>

#include "base/value.h"
#include "espalier/status.h"

namespace espalier {

// Strict JSON in UTF-8. Refuses: invalid UTF-8, lone surrogates, more than kMaxValueDepth levels, trailing text.
// Integers outside int64 become doubles. A repeated key keeps its last value. The status names line and column.
Result<Value> parse_json(std::string_view text);

// Compact by default; `indent` > 0 breaks lines. Doubles print their shortest form that reads back equal and always look
// like a double (1.0, not 1); NaN and infinities print null. Invalid UTF-8 in strings is replaced by U+FFFD.
std::string to_json(const Value& value, int indent = 0);

}  // namespace espalier
