#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "engine/answer_json.h"
#include "text/unicode.h"
#include "text/utf8_stream.h"

namespace espalier::cli {
namespace {

constexpr size_t kLineMax = 4000;

bool exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

std::string folder_of(const std::string& path) {
  const size_t cut = path.rfind('/');
  return cut == std::string::npos || cut == 0 ? std::string() : path.substr(0, cut);
}

}  // namespace

int fail(const Arguments& args, const Status& status) {
  if (status.code() == Code::cancelled && interrupted()) return kExitInterrupted;
  if (args.flag("json")) out(to_json(error_json(status)) + "\n");
  complain(status);
  return kExitFailed;
}

void complain(const Status& status) { err("espalier: " + one_line(status.message()) + "\n"); }

std::string one_line(const std::string& text) {
  std::string line = replace_invalid_utf8(text.substr(0, kLineMax));
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text.size() > kLineMax ? line + " ..." : line;
}

Status check_text(const std::string& text, const char* field) {
  const size_t at = find_invalid_utf8(text);
  if (at == std::string::npos) return {};
  return invalid(std::string(field) + ": the text is not valid UTF-8 at byte " + std::to_string(at), field);
}

int usage(const std::string& message) {
  err("espalier: " + message + "\n");
  return kExitUsage;
}

int finish_output(int code) {
  if (out_closed()) return kExitPipeClosed;
  if (write_failure().empty()) return code;
  err("espalier: " + write_failure() + "\n");
  return kExitFailed;
}

int print_json(const Value& value) {
  out(to_json(value) + "\n");
  return finish_output(kExitOk);
}

Result<Engine> open_with_progress(const Arguments& args, const std::string& model) {
  OpenOptions options;
  options.model = model;
  const bool drafts = (args.command & (kRun | kChat | kProfile)) != 0 || args.flag("draft") || (args.command == kBench && args.flag("sequences"));
  if (!drafts) options.speculate = "off";
  ESPALIER_TRY(args.apply(options));
  Progress progress(model + ": packing weights", args.flag("quiet"));
  options.on_progress = [&](uint64_t done, uint64_t total) {
    progress.update(done, total);
    return !interrupted();
  };
  auto engine = [&] {
    const HoldInterrupts hold;
    return Engine::open(options);
  }();
  progress.clear();
  if (engine.ok() && !args.flag("quiet"))
    for (const std::string& notice : engine->info().notices) err("espalier: note: " + one_line(notice) + "\n");
  return engine;
}

Result<std::string> read_tools(const std::string& path) {
  ESPALIER_ASSIGN(const std::string text, read_file(path));
  auto value = parse_json(text);
  if (!value.ok()) return Status(Code::invalid_argument, path + ": " + value.status().message(), "tools");
  const Value* tools = value->is_object() ? value->find("tools") : &*value;
  if (tools == nullptr || !tools->is_array()) return invalid(path + ": expected an array of tools, or an object with \"tools\"", "tools");
  return to_json(*tools);
}

bool looks_like_model(const std::string& word) {
  return exists(word) || word.find('/') != std::string::npos || word.ends_with(".gguf");
}

// Beside the program's own files: share/espalier of the place it is installed in, or models/ of the source tree it was built in.
Result<std::string> default_model() {
  std::array<char, 4096> buffer;
  const ssize_t n = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  std::string folder = n > 0 ? folder_of(std::string(buffer.data(), static_cast<size_t>(n))) : std::string();
  for (int i = 0; i < 6 && !folder.empty(); ++i, folder = folder_of(folder))
    for (const char* place : {"/share/espalier/models/demo", "/models/demo"})
      if (exists(folder + place + "/config.json")) return folder + place;
  return Status(Code::not_found,
                "no MODEL is given and no default model is installed; name a folder or a .gguf file (`make demo` in the source tree "
                "fetches a small one)",
                "model");
}

}  // namespace espalier::cli
