// A back end that is another process: it has the program's functions, and answers calls in frames (child_process.h).
//
//   call    text function | u32 n | n arrays (inputs, states)
//   answer  u8 1 | u32 n | n arrays (outputs, states)         or u8 0 | the rest: what went wrong, a sentence
//   array   text name | u8 kind (0 input, 1 state, 2 output) | u8 type (0 fp16, 1 int32, 2 uint32) | u8 axes | u32 extents | values, row-major
//   text    u32 bytes | UTF-8
// All little endian; ports are named as lower/port_names.h says. The first answer, without a call, has no arrays: the program is
// loaded. tools/aimodel.py is one such process.
#pragma once

#include "units/static/backend.h"

namespace espalier {

// Starts `command`, whose standard error goes to the file `log`, and waits for its first answer. Errors speak of it as `name`.
Result<std::unique_ptr<StaticBackend>> process_backend(const LoweredProgram& lowered, std::string name, const std::vector<std::string>& command, const std::string& log);

}  // namespace espalier
