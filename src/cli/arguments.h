// The command line, read by the table of options.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/options.h"

namespace espalier::cli {

struct Arguments {
  uint32_t command = 0;
  std::vector<std::string> positionals;
  std::vector<std::pair<const OptionSpec*, Value>> options;  // lists are merged: each option once

  const Value* find(std::string_view name) const;
  bool flag(std::string_view name) const { return find(name) != nullptr; }
  std::optional<std::string> text(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name) const;
  // Sets what the options that are given set.
  Status apply(GenerateOptions& options) const;
  Status apply(OpenOptions& options) const;
};

struct CommandSpec {
  const char* name;
  uint32_t command;
  const char* positionals;  // "MODEL [PROMPT | -]"
  size_t positionals_min, positionals_max;
  const char* help;
};
std::span<const CommandSpec> command_table();

// What to do: run `arguments`, or print `text` and exit with `code`.
struct Parsed {
  Arguments arguments;
  bool stop = false;
  int code = 0;
  std::string text;  // help and version go to stdout (code 0), complaints to stderr (code 2)
};
Parsed parse_arguments(const std::vector<std::string>& argv);

std::string help_text();
std::string help_text(const CommandSpec& command);

}  // namespace espalier::cli
