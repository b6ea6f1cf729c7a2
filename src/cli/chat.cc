// chat: a conversation on the terminal, or through a pipe (a line a turn).
#include "cli/commands.h"
#include "cli/stats.h"
#include "cli/terminal.h"

namespace espalier::cli {
namespace {

constexpr const char* kHelp =
    "/system TEXT   sets the system message (without TEXT: none)\n"
    "/new           forgets the conversation\n"
    "/messages      prints it as JSON\n"
    "/exit          leaves, as Ctrl-D does; Ctrl-C stops an answer\n";

class Chat {
 public:
  Chat(const Arguments& args, Engine engine, GenerateOptions options, std::string tools, Conversation conversation)
      : args_(args), engine_(std::move(engine)), options_(std::move(options)), tools_(std::move(tools)), talk_(std::move(conversation)) {}

  // False: it is no text, and nothing changed.
  bool set_system(const std::string& text) {
    if (const Status s = check_text(text, "system"); !s.ok()) return !complain(s);
    system_ = text;
    talk_.set_system(text);
    return true;
  }

  int loop() {
    const bool typed = in_is_terminal();
    if (typed) err(engine_.info().model + " (/help lists commands)\n");
    std::string line;
    for (;;) {
      if (typed) err("> ");
      const auto got = read_line(line);
      if (!got.ok()) {
        complain(got.status());
        return finish_output(code_);
      }
      switch (*got) {
        case Line::end:
          if (typed) err("\n");
          return finish_output(code_);
        case Line::interrupted:
          clear_interrupt();
          err("\n(/exit or Ctrl-D leaves)\n");
          continue;
        case Line::read: break;
      }
      if (line.empty()) continue;
      if (line[0] == '/' ? !command(line) : !turn(line)) return finish_output(code_);
    }
  }

 private:
  // False: leave.
  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/system") {
      set_system(rest);
    } else if (name == "/new") {
      auto fresh = engine_.conversation(tools_);
      if (!fresh.ok()) return complain(fresh.status());
      talk_ = std::move(fresh).value();
      talk_.set_system(system_);
    } else if (name == "/messages") {
      out(talk_.messages() + "\n");
    } else {
      err(name == "/help" ? kHelp : "espalier: there is no command " + name + "\n" + kHelp);
    }
    return true;
  }

  bool complain(const Status& status) {
    cli::complain(status);
    code_ = kExitFailed;
    return true;
  }

  bool turn(const std::string& text) {
    if (const Status s = check_text(text, "messages"); !s.ok()) return complain(s);
    const bool quiet = args_.flag("quiet");
    OnInterrupt cancel([](void* c) { static_cast<Conversation*>(c)->cancel(); }, &talk_);
    Progress progress("reading", quiet || !err_is_terminal());
    StreamPrinter printer(quiet);
    Callbacks callbacks;
    callbacks.on_prefill = [&](int64_t done, int64_t total) {
      if (done < total) progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    };
    callbacks.on_delta = [&](const Delta& delta) {
      progress.clear();
      if (!printer.print(delta)) talk_.cancel();
    };
    auto answer = talk_.ask(text, options_, callbacks);
    progress.clear();
    clear_interrupt();
    if (!answer.ok()) return complain(answer.status());
    printer.end();
    if (!quiet)
      for (const std::string& w : answer->warnings) err("espalier: warning: " + one_line(w) + "\n");
    if (args_.flag("stats")) err(stats_text(*answer, engine_.info()));
    return !out_closed();
  }

  const Arguments& args_;
  Engine engine_;
  GenerateOptions options_;
  std::string tools_, system_;
  Conversation talk_;
  int code_ = kExitOk;
};

}  // namespace

int chat_command(const Arguments& args) {
  auto model = args.positionals.empty() ? default_model() : Result<std::string>(args.positionals[0]);
  if (!model.ok()) return fail(args, model.status());
  GenerateOptions options;
  if (Status s = args.apply(options); !s.ok()) return fail(args, s);
  std::string tools;
  if (const auto path = args.text("tools")) {
    auto text = read_tools(*path);
    if (!text.ok()) return fail(args, text.status());
    tools = std::move(text).value();
  }
  auto engine = open_with_progress(args, *model);
  if (!engine.ok()) return fail(args, engine.status());
  auto conversation = engine->conversation(tools);
  if (!conversation.ok()) return fail(args, conversation.status());
  Chat chat(args, *engine, options, tools, std::move(conversation).value());
  return chat.set_system(args.text("system").value_or("")) ? chat.loop() : kExitFailed;
}

}  // namespace espalier::cli
