// Template source -> tokens, with jinja2's rules for white space (trim_blocks and lstrip_blocks are on).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace espalier::jinja {

struct Token {
  enum class Kind {
    data,  // template text
    variable_begin, variable_end, block_begin, block_end,
    name, string, integer, floating, op,
    end,
  };
  Kind kind;
  int line;
  std::string text;  // of data, name and op; the value of a string
  int64_t integer = 0;
  double floating = 0;
};

// Throws JinjaFailure with the line.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace espalier::jinja
