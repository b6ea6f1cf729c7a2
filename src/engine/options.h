// The one table of options: name, type, default, help, and who takes it. The command line and request bodies read it;
// adding an option is adding a row (docs/add-an-option.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "espalier/engine.h"

namespace espalier {

enum class OptionType {
  flag,     // --json                   true, false
  integer,  // --max-tokens 64          64
  number,   // --temperature 0.7        0.7
  text,     // --system TEXT            "TEXT"
  texts,    // --stop A --stop B        ["A", "B"], or "A"
  biases,   // --logit-bias 17:-2.5     {"17": -2.5}
};

enum Command : uint32_t {
  kRun = 1, kScore = 2, kChat = 4, kRender = 8, kTokenize = 16, kInspect = 32, kConvert = 64, kVerify = 128, kUnits = 256, kCache = 512,
  kBench = 1024, kProfile = 2048, kFidelity = 4096, kExport = 8192,
};

struct OptionSpec {
  const char* name;         // "max-tokens" on the command line, "max_tokens" in a body
  OptionType type;
  const char* placeholder;  // "N"
  const char* fallback;     // what holds without it, for people; empty: nothing to say
  const char* help;
  uint32_t commands;        // that take it
  // What it sets; null: the front end reads it itself.
  Status (*generate)(GenerateOptions&, const Value&);
  Status (*open)(OpenOptions&, const Value&);
};

std::span<const OptionSpec> option_table();
// The row of that name (in either spelling) that one of the commands takes, or nullptr. Two commands may use a name for two things.
const OptionSpec* find_option(std::string_view name, uint32_t commands);
std::string body_key(const OptionSpec& spec);  // "max_tokens"

// Checks a value against the row's type; whole doubles are integers. The status names the option as `shown`.
Result<Value> check_option(const OptionSpec& spec, const Value& value, const std::string& shown);
// The value that a command line's text means ("0.7", "17:-2.5"). For lists: of one occurrence.
Result<Value> parse_option(const OptionSpec& spec, std::string_view text);

// The name nearest to a mistyped one, or empty if none is near.
std::string nearest(std::string_view wrong, std::span<const std::string> names);

}  // namespace espalier
