// One function a command; each returns the exit code.
#pragma once

#include <string>

#include "base/value.h"
#include "cli/arguments.h"
#include "espalier/engine.h"

namespace espalier::cli {

int run_command(const Arguments& args);
int chat_command(const Arguments& args);
int score_command(const Arguments& args);
int render_command(const Arguments& args);
int tokenize_command(const Arguments& args);
int inspect_command(const Arguments& args);
int convert_command(const Arguments& args);
int export_command(const Arguments& args);
int verify_command(const Arguments& args);
int units_command(const Arguments& args);
int cache_command(const Arguments& args);
int bench_command(const Arguments& args);
int profile_command(const Arguments& args);
int fidelity_command(const Arguments& args);

// Shared by the commands.

// The sentence on stderr behind "espalier: "; with --json the error object on stdout. Returns the exit code.
int fail(const Arguments& args, const Status& status);
// The sentence alone.
void complain(const Status& status);
// What a terminal shows in one line: what is no text is replaced, controls are blanks, the end of a very long one is left out.
std::string one_line(const std::string& text);
int usage(const std::string& message);
// Refuses what is not UTF-8, by the field and the byte.
Status check_text(const std::string& text, const char* field);
// A line on stdout of JSON; the exit code that follows from writing it.
int print_json(const Value& value);
int finish_output(int code);  // `code`, or what a closed pipe or a full disk makes of it
// Opens the model with progress on stderr and its notices; Ctrl-C ends it with Code::cancelled.
Result<Engine> open_with_progress(const Arguments& args, const std::string& model);
// The array of tools in a file that holds it alone or in a body, as JSON.
Result<std::string> read_tools(const std::string& path);
// The embedded default, or an error that says how to get a model.
Result<std::string> default_model();
bool looks_like_model(const std::string& word);

}  // namespace espalier::cli
