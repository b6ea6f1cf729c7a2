// run: one prompt, a conversation from a file, or many of them.
#include <cstdio>

#include "base/json.h"
#include "base/lines.h"
#include "cli/commands.h"
#include "cli/stats.h"
#include "cli/terminal.h"
#include "engine/answer_json.h"
#include "engine/body.h"

namespace espalier::cli {
namespace {

struct Job {
  Prompt prompt;
  GenerateOptions options;
  std::vector<std::string> warnings;
};

// What stands on the command line besides options.
struct Words {
  std::string model;
  std::optional<std::string> prompt;
};

Result<Words> read_words(const Arguments& args) {
  const auto& given = args.positionals;
  const bool from_file = args.flag("messages") || args.flag("jsonl");
  Words words;
  if (given.size() == 2) {
    words = {given[0], given[1]};
  } else if (given.size() == 1 && (from_file || looks_like_model(given[0]) || !default_model().ok())) {
    words.model = given[0];
  } else {
    ESPALIER_ASSIGN(words.model, default_model());
    if (!given.empty()) words.prompt = given[0];
  }
  return words;
}

std::string message(const char* role, const std::string& text) {
  Value m = Value::object();
  m.set("role", role);
  m.set("content", text);
  return to_json(m);
}

Result<std::string> prompt_text(const Arguments& args, const Words& words) {
  if (words.prompt && *words.prompt != "-") return *words.prompt;
  ESPALIER_ASSIGN(std::string text, read_all_input());
  // The newline that ends a typed or echoed question is not part of it; raw text is taken as it is.
  if (!args.flag("raw") && text.ends_with('\n')) text.pop_back();
  return text;
}

Result<Job> job_of_body(const std::string& text, const std::string& where, const Arguments& args) {
  auto value = parse_json(text);
  if (!value.ok()) return Status(Code::invalid_argument, where + ": " + value.status().message(), "messages");
  auto body = read_body(*value, {});
  if (!body.ok()) return std::move(body).status().with_context(where);
  Job job{std::move(body->prompt), std::move(body->options), std::move(body->warnings)};
  ESPALIER_TRY(args.apply(job.options));  // the command line beats the file
  if (const auto tools = args.text("tools")) {
    ESPALIER_ASSIGN(job.prompt.tools, read_tools(*tools));
  }
  return job;
}

Result<Job> job_of_words(const Arguments& args, const Words& words) {
  Job job;
  ESPALIER_TRY(args.apply(job.options));
  ESPALIER_ASSIGN(const std::string text, prompt_text(args, words));
  ESPALIER_TRY(check_text(text, "prompt"));
  if (args.flag("raw")) {
    job.prompt.raw = text;
    job.prompt.raw_special = args.flag("special");
    return job;
  }
  const auto system = args.text("system");
  if (system) ESPALIER_TRY(check_text(*system, "system"));
  job.prompt.messages = "[" + (system ? message("system", *system) + "," : std::string()) + message("user", text) + "]";
  if (const auto tools = args.text("tools")) {
    ESPALIER_ASSIGN(job.prompt.tools, read_tools(*tools));
  }
  return job;
}

// One answer. Streams where it may.
Result<Answer> answer(const Engine& engine, const Job& job, bool streams, bool quiet) {
  ESPALIER_ASSIGN(Request request, engine.request(job.prompt, job.options));
  OnInterrupt cancel([](void* r) { static_cast<Request*>(r)->cancel(); }, &request);
  Progress progress("reading the prompt", quiet || !err_is_terminal());
  StreamPrinter printer(quiet);
  Callbacks callbacks;
  callbacks.on_prefill = [&](int64_t done, int64_t total) {
    if (done < total) progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    else progress.clear();
  };
  if (streams)
    callbacks.on_delta = [&](const Delta& delta) {
      progress.clear();
      if (!printer.print(delta)) request.cancel();
    };
  auto result = request.run(callbacks);
  if (streams) printer.end();
  if (result.ok()) result->warnings.insert(result->warnings.begin(), job.warnings.begin(), job.warnings.end());
  return result;
}

int run_one(const Arguments& args, const Engine& engine, const Job& job) {
  const bool json = args.flag("json"), quiet = args.flag("quiet");
  auto result = answer(engine, job, !json, quiet);
  if (!result.ok()) return fail(args, result.status());
  if (!quiet)
    for (const std::string& w : result->warnings) err("espalier: warning: " + one_line(w) + "\n");
  if (json) out(engine.to_json(*result) + "\n");
  if (args.flag("stats")) err(stats_text(*result, engine.info()));
  return finish_output(result->finish_reason == FinishReason::cancelled && interrupted() ? kExitInterrupted : kExitOk);
}

// The lines of a file, each answered or refused; results are printed in the order of the lines.
class Lines {
 public:
  Lines(const Arguments& args, const Engine& engine, std::string path) : args_(args), engine_(engine), path_(std::move(path)) {}

  void read(const std::string& text) {
    for (const auto& [line, number] : record_lines(text)) take(std::string(line), path_ + ", line " + std::to_string(number));
  }
  int run(int32_t sequences) {
    OnInterrupt on_interrupt([](void* lines) { static_cast<Lines*>(lines)->cancel(); }, this);
    print();
    engine_.run_together(requests_, sequences, [this](size_t index, Result<Answer> result) {
      Slot& slot = slots_[place_[index]];
      if (result.ok()) result->warnings.insert(result->warnings.begin(), slot.warnings.begin(), slot.warnings.end());
      slot.result.emplace(std::move(result));
      print();
      if (out_closed()) cancel();
    });
    return finish_output(interrupted() ? kExitInterrupted : code_);
  }

 private:
  struct Slot {
    std::optional<Result<Answer>> result;
    std::vector<std::string> warnings;
  };
  void take(const std::string& line, const std::string& where) {
    Slot& slot = slots_.emplace_back();
    auto job = job_of_body(line, where, args_);
    auto request = job.ok() ? engine_.request(job->prompt, job->options) : Result<Request>(job.status());
    if (!request.ok()) {
      slot.result.emplace(request.status());
      return;
    }
    slot.warnings = std::move(job->warnings);
    place_.push_back(slots_.size() - 1);
    requests_.push_back(std::move(request).value());
  }
  void cancel() {  // runs in a signal handler
    for (Request& r : requests_) r.cancel();
  }
  // All that is ready and whose turn it is.
  void print() {
    for (; printed_ < slots_.size() && slots_[printed_].result; ++printed_) {
      Result<Answer>& result = *slots_[printed_].result;
      // What an interrupt cut before it began is no answer.
      if (result.ok() && interrupted() && result->token_ids.empty()) continue;
      if (result.ok()) {
        out(engine_.to_json(*result) + "\n");
        if (args_.flag("stats")) err(stats_text(*result, engine_.info()));
      } else {
        out(to_json(error_json(result.status())) + "\n");
        complain(result.status());
        code_ = kExitFailed;
      }
      result = Answer();
    }
  }

  const Arguments& args_;
  const Engine& engine_;
  std::string path_;
  std::vector<Slot> slots_;       // one a line
  std::vector<size_t> place_;     // slot of each request
  std::vector<Request> requests_;
  size_t printed_ = 0;
  int code_ = kExitOk;
};

int run_lines(const Arguments& args, const Engine& engine, const std::string& path) {
  const int64_t sequences = args.integer("sequences").value_or(8);
  if (sequences < 1 || sequences > 1024)
    return fail(args, invalid("sequences: expected 1 to 1024, found " + std::to_string(sequences), "sequences"));
  auto text = read_file(path);
  if (!text.ok()) return fail(args, text.status());
  Lines lines(args, engine, path);
  lines.read(*text);
  return lines.run(static_cast<int32_t>(sequences));
}

// Words that cannot stand together.
std::string contradiction(const Arguments& args, bool has_prompt) {
  const bool messages = args.flag("messages"), lines = args.flag("jsonl");
  if (messages && lines) return "--messages and --jsonl cannot be given together";
  if ((messages || lines) && has_prompt) return "a PROMPT cannot be given together with --messages or --jsonl";
  if ((messages || lines) && (args.flag("raw") || args.flag("system"))) return "--raw and --system cannot be given together with --messages or --jsonl";
  if (args.flag("raw") && (args.flag("system") || args.flag("tools"))) return "--system and --tools need the template that --raw leaves out";
  if (args.flag("sequences") && !lines) return "--sequences needs --jsonl";
  if (args.flag("special") && !args.flag("raw")) return "--special needs --raw";
  return {};
}

}  // namespace

int run_command(const Arguments& args) {
  auto words = read_words(args);
  if (!words.ok()) return fail(args, words.status());
  if (const std::string wrong = contradiction(args, words->prompt.has_value()); !wrong.empty()) return usage(wrong);
  const auto messages = args.text("messages"), lines = args.text("jsonl");
  if (!messages && !lines && !words->prompt && in_is_terminal()) return usage("expected a PROMPT, or - to read it from stdin");

  // Input is read, and refused, before the model is.
  std::optional<Result<Job>> job;
  if (messages) {
    auto text = read_file(*messages);
    job.emplace(text.ok() ? job_of_body(*text, *messages, args) : Result<Job>(text.status()));
  } else if (!lines) {
    job.emplace(job_of_words(args, *words));
  }
  if (job && !job->ok()) return fail(args, job->status());
  auto engine = open_with_progress(args, words->model);
  if (!engine.ok()) return fail(args, engine.status());
  return lines ? run_lines(args, *engine, *lines) : run_one(args, *engine, **job);
}

}  // namespace espalier::cli
