// OpenAI chat bodies: what they ask for, in the engine's terms. Every front end reads them here.
#pragma once

#include <string>
#include <vector>

#include "base/value.h"
#include "espalier/request.h"
#include "espalier/status.h"

namespace espalier {

struct Body {
  Prompt prompt;
  GenerateOptions options;
  std::vector<std::string> warnings;  // keys that nothing here knows
};

// `body`: an object with "messages" (and "tools", and options by their body names), or the array of messages alone. Known
// keys of the wrong type are refused with the field; keys that OpenAI clients send and that change nothing here are ignored;
// what would change the answer and cannot be had is refused; other keys are a warning.
// `defaults`: options that hold where the body says nothing.
Result<Body> read_body(const Value& body, const GenerateOptions& defaults);

// The options alone: an object of the same keys, without "messages".
Status read_options(const Value& options, Body& out);

}  // namespace espalier
