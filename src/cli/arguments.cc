#include "cli/arguments.h"

#include <CLI/CLI.hpp>

#include "cli/terminal.h"

namespace espalier::cli {
namespace {

constexpr CommandSpec kCommands[] = {
    {"run", kRun, "[MODEL] [PROMPT | -]", 0, 2, "answers one prompt; without PROMPT it is read from stdin"},
    {"chat", kChat, "[MODEL]", 0, 1, "a conversation, one line a turn; /exit leaves, /help lists more"},
    {"score", kScore, "MODEL", 1, 1, "the perplexity of the raw text on stdin, or its log-probabilities (--json)"},
    {"render", kRender, "MODEL", 1, 1, "the prompt of a JSON conversation on stdin"},
    {"tokenize", kTokenize, "MODEL", 1, 1, "the token ids of the text on stdin"},
    {"inspect", kInspect, "MODEL", 1, 1, "what a model is made of"},
    {"convert", kConvert, "MODEL OUT", 2, 2, "writes a folder with packed weights that starts at once"},
    {"export", kExport, "MODEL OUT", 2, 2, "writes the model's program for Apple's units: OUT.mlpackage, OUT.aimodel or OUT.coreai"},
    {"verify", kVerify, "MODEL", 1, 1, "decodes in two ways and compares"},
    {"units", kUnits, "", 0, 0, "what this machine can run models on, or why not"},
    {"cache", kCache, "list | clear", 1, 1, "packed weights that were kept"},
    {"bench", kBench, "MODEL", 1, 1, "times of calls, prompt reading and decoding, and the share of the machine's ceilings; what drafting and sharing calls are worth"},
    {"fidelity", kFidelity, "MODEL", 1, 1, "how many of a model's choices are a reference's, on the same text"},
    {"profile", kProfile, "MODEL", 1, 1, "measures what calls take by rows and context, and keeps it for drafting"},
};

struct UsageError {
  std::string message;
};

// Text of one occurrence of an option, into the list of values.
void add_value(Arguments& args, const OptionSpec& spec, const std::string& text) {
  auto value = parse_option(spec, text);
  if (!value.ok()) throw UsageError{value.status().message()};
  for (auto& [have, merged] : args.options) {
    if (have != &spec) continue;
    if (spec.type == OptionType::texts) {
      merged.push(*value);
    } else if (spec.type == OptionType::biases) {
      for (auto& [key, bias] : value->as_object()) merged.set(key, bias);
    } else if (spec.type != OptionType::flag) {
      throw UsageError{std::string("--") + spec.name + " is given twice"};
    }
    return;
  }
  args.options.emplace_back(&spec, spec.type == OptionType::texts ? Value(Value::Array{*value}) : *value);
}

void complain_of_unknown(const CommandSpec& command, const std::string& given) {
  const std::string name = given.substr(0, given.find('='));
  std::vector<std::string> names = {"--help"};
  for (const OptionSpec& spec : option_table())
    if ((spec.commands & command.command) != 0) names.push_back(std::string("--") + spec.name);
  const std::string near = nearest(name, names);
  std::string elsewhere;
  for (const CommandSpec& other : kCommands)
    if (name.starts_with("--") && find_option(name.substr(2), command.command) == nullptr && find_option(name.substr(2), other.command) != nullptr)
      elsewhere += (elsewhere.empty() ? "" : ", ") + std::string(other.name);
  throw UsageError{std::string(command.name) + " has no option " + name +
                   (!elsewhere.empty() ? " (" + elsewhere + (elsewhere.find(',') == std::string::npos ? " has)" : " have)")
                    : near.empty()     ? ""
                                       : "; did you mean " + near + "?")};
}

// CLI11 sorts the words; values stay texts until add_value.
Arguments parse_command(const CommandSpec& command, const std::vector<std::string>& words, bool& wants_help) {
  CLI::App app;
  app.set_help_flag("");
  app.allow_extras(true);
  app.allow_windows_style_options(false);
  std::vector<std::string> positionals;
  app.add_option("positionals", positionals)->expected(0, 1 << 20);
  app.add_flag("--help,-h", wants_help);
  struct Slot {
    const OptionSpec* spec;
    std::vector<std::string> texts;
    CLI::Option* option;
  };
  std::vector<Slot> slots;
  slots.reserve(option_table().size());
  for (const OptionSpec& spec : option_table()) {
    if ((spec.commands & command.command) == 0) continue;
    Slot& slot = slots.emplace_back(Slot{&spec, {}, nullptr});
    const std::string name = std::string("--") + spec.name;
    if (spec.type == OptionType::flag)
      slot.option = app.add_flag(name);
    else
      slot.option = app.add_option(name, slot.texts)->allow_extra_args(false)->expected(1)->take_all();
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& e) {
    throw UsageError{e.what()};
  }
  for (const std::string& extra : app.remaining())
    if (extra.size() > 1 && extra[0] == '-' && extra != "--") complain_of_unknown(command, extra);
  Arguments args;
  args.command = command.command;
  args.positionals = std::move(positionals);
  for (const Slot& slot : slots) {
    if (slot.option->count() == 0) continue;
    if (slot.spec->type == OptionType::flag) {
      for (const std::string& value : slot.option->results())
        if (value != "true") throw UsageError{std::string("--") + slot.spec->name + " takes no value, found \"" + value + "\""};
      args.options.emplace_back(slot.spec, true);
    }
    for (const std::string& text : slot.texts) add_value(args, *slot.spec, text);
  }
  return args;
}

const CommandSpec& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const CommandSpec& c : kCommands) {
    if (name == c.name) return c;
    names.push_back(c.name);
  }
  const std::string near = nearest(name, names);
  throw UsageError{"there is no command " + name + (near.empty() ? "" : "; did you mean " + near + "?")};
}

void check_positionals(const CommandSpec& command, const Arguments& args) {
  const size_t n = args.positionals.size();
  if (n >= command.positionals_min && n <= command.positionals_max) return;
  throw UsageError{std::string("expected: espalier ") + command.name + " " + command.positionals + "; found " +
                   (n < command.positionals_min ? "too few arguments" : "one too many: " + args.positionals[command.positionals_max])};
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text + "  ";
}

}  // namespace

const Value* Arguments::find(std::string_view name) const {
  for (const auto& [spec, value] : options)
    if (name == spec->name) return &value;
  return nullptr;
}
std::optional<std::string> Arguments::text(std::string_view name) const {
  const Value* v = find(name);
  return v == nullptr ? std::nullopt : std::optional(v->as_string());
}
std::optional<int64_t> Arguments::integer(std::string_view name) const {
  const Value* v = find(name);
  return v == nullptr ? std::nullopt : std::optional(v->as_int());
}
Status Arguments::apply(GenerateOptions& target) const {
  for (const auto& [spec, value] : options)
    if (spec->generate != nullptr) ESPALIER_TRY(spec->generate(target, value));
  return {};
}
Status Arguments::apply(OpenOptions& target) const {
  for (const auto& [spec, value] : options)
    if (spec->open != nullptr) ESPALIER_TRY(spec->open(target, value));
  target.cache = !flag("no-cache");
  return {};
}

std::span<const CommandSpec> command_table() { return kCommands; }

Parsed parse_arguments(const std::vector<std::string>& argv) {
  Parsed parsed;
  parsed.stop = true;
  if (argv.empty() || argv[0] == "--help" || argv[0] == "-h" || argv[0] == "help") {
    parsed.text = help_text();
    if (argv.empty()) parsed.code = kExitUsage;
    return parsed;
  }
  if (argv[0] == "--version" || argv[0] == "version") {
    parsed.text = std::string("espalier ") + version() + "\n";
    return parsed;
  }
  std::string hint = "espalier --help";
  try {
    const CommandSpec& command = find_command(argv[0]);
    hint = std::string("espalier ") + command.name + " --help";
    bool wants_help = false;
    parsed.arguments = parse_command(command, {argv.begin() + 1, argv.end()}, wants_help);
    if (wants_help) {
      parsed.text = help_text(command);
      return parsed;
    }
    check_positionals(command, parsed.arguments);
    parsed.stop = false;
  } catch (const UsageError& e) {
    parsed.code = kExitUsage;
    parsed.text = "espalier: " + e.message + "\n(" + hint + " lists what there is)\n";
  }
  return parsed;
}

std::string help_text() {
  std::string text = "usage: espalier COMMAND ...\n\n";
  for (const CommandSpec& c : kCommands) text += "  " + padded(std::string(c.name) + " " + c.positionals, 28) + c.help + "\n";
  return text + "\nMODEL is a folder (Hugging Face, MLX, converted) or a .gguf file. `espalier COMMAND --help` lists its options.\n"
                "Answers go to stdout, everything else to stderr. Exit: 0 fine, 1 refused or failed, 2 wrong usage, 130 interrupted.\n";
}

std::string help_text(const CommandSpec& command) {
  std::string text = std::string("usage: espalier ") + command.name + " " + command.positionals + " [options]\n  " + command.help + "\n\n";
  for (const OptionSpec& spec : option_table()) {
    if ((spec.commands & command.command) == 0) continue;
    text += "  " + padded(std::string("--") + spec.name + (spec.placeholder[0] != '\0' ? " " : "") + spec.placeholder, 26) + spec.help;
    if (spec.fallback[0] != '\0') text += std::string(" [") + spec.fallback + "]";
    text += "\n";
  }
  return text;
}

}  // namespace espalier::cli
