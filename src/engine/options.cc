#include "engine/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace espalier {
namespace {

template <typename T>
using Set = Status (*)(T&, const Value&);
using G = GenerateOptions;
using O = OpenOptions;

Status set_temperature(G& g, const Value& v) { return g.temperature = v.as_double(), Status(); }
Status set_top_k(G& g, const Value& v) { return g.top_k = v.as_int(), Status(); }
Status set_top_p(G& g, const Value& v) { return g.top_p = v.as_double(), Status(); }
Status set_min_p(G& g, const Value& v) { return g.min_p = v.as_double(), Status(); }
Status set_repetition(G& g, const Value& v) { return g.repetition_penalty = v.as_double(), Status(); }
Status set_presence(G& g, const Value& v) { return g.presence_penalty = v.as_double(), Status(); }
Status set_frequency(G& g, const Value& v) { return g.frequency_penalty = v.as_double(), Status(); }
Status set_max_tokens(G& g, const Value& v) { return g.max_tokens = v.as_int(), Status(); }
Status set_logprobs(G& g, const Value& v) { return g.logprobs = v.as_int(), Status(); }
Status set_seed(G& g, const Value& v) {
  if (v.as_int() < 0) return invalid("seed: expected a number from 0, found " + std::to_string(v.as_int()), "seed");
  g.seed = static_cast<uint64_t>(v.as_int());
  return {};
}
Status set_stop(G& g, const Value& v) {
  g.stop.clear();
  for (const Value& s : v.as_array()) g.stop.push_back(s.as_string());
  return {};
}
Status set_logit_bias(G& g, const Value& v) {
  g.logit_bias.clear();
  for (const auto& [key, bias] : v.as_object()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || key.empty())
      return invalid("logit_bias: expected token ids, found \"" + key + "\"", "logit_bias");
    g.logit_bias.emplace_back(id, static_cast<float>(bias.as_double()));
  }
  return {};
}

Status set_speculate(G& g, const Value& v) { return g.speculate = v.as_string(), Status(); }
Status set_speculate_open(O& o, const Value& v) { return o.speculate = v.as_string(), Status(); }
Status set_drafter(O& o, const Value& v) { return o.drafter = v.as_string(), Status(); }
Status set_unit(O& o, const Value& v) { return o.unit = v.as_string(), Status(); }
Status set_buckets(O& o, const Value& v) { return o.buckets = v.as_string(), Status(); }
Status set_weights(O& o, const Value& v) { return o.weights = v.as_string(), Status(); }
Status set_activations(O& o, const Value& v) { return o.activations = v.as_string(), Status(); }
Status set_kv(O& o, const Value& v) { return o.kv = v.as_string(), Status(); }
Status set_threads(O& o, const Value& v) {
  if (v.as_int() < 0 || v.as_int() > 1024)
    return invalid("threads: expected 0 (all that are allowed) to 1024, found " + std::to_string(v.as_int()), "threads");
  o.threads = static_cast<uint32_t>(v.as_int());
  return {};
}
Status set_context(O& o, const Value& v) {
  if (v.as_int() < 1) return invalid("context: expected at least 1 token, found " + std::to_string(v.as_int()), "context");
  o.context = v.as_int();
  return {};
}

constexpr uint32_t kGenerates = kRun | kChat;
constexpr uint32_t kOpens = kRun | kScore | kChat | kVerify | kBench | kProfile | kFidelity;
using T = OptionType;

constexpr OptionSpec kTable[] = {
    // Sampling and limits.
    {"temperature", T::number, "X", "the model's, else 1", "divides the logits; 0 is greedy", kGenerates, set_temperature, nullptr},
    {"top-k", T::integer, "K", "the model's, else 0 (all)", "keeps the K best tokens", kGenerates, set_top_k, nullptr},
    {"top-p", T::number, "P", "the model's, else 1", "keeps the best tokens that reach this probability together", kGenerates, set_top_p, nullptr},
    {"min-p", T::number, "P", "the model's, else 0", "keeps tokens with at least this share of the best one's probability", kGenerates, set_min_p, nullptr},
    {"repetition-penalty", T::number, "X", "the model's, else 1", "divides positive logits of tokens in prompt and answer, multiplies negative ones", kGenerates, set_repetition, nullptr},
    {"presence-penalty", T::number, "X", "0", "subtracted from the logits of tokens in the answer", kGenerates, set_presence, nullptr},
    {"frequency-penalty", T::number, "X", "0", "subtracted once for each time that a token is in the answer", kGenerates, set_frequency, nullptr},
    {"logit-bias", T::biases, "ID:X", "", "added to the logit of a token; may be given again", kGenerates, set_logit_bias, nullptr},
    {"max-tokens", T::integer, "N", "what the context holds", "ends the answer after N tokens", kGenerates, set_max_tokens, nullptr},
    {"stop", T::texts, "TEXT", "", "ends the answer right before TEXT; may be given again", kGenerates, set_stop, nullptr},
    {"seed", T::integer, "N", "drawn", "of the sampling noise", kGenerates, set_seed, nullptr},
    {"logprobs", T::integer, "K", "", "log-probabilities of each token, with the K best alternatives", kRun | kScore, set_logprobs, nullptr},
    // The prompt.
    {"system", T::text, "TEXT", "", "the system message", kRun | kChat, nullptr, nullptr},
    {"raw", T::flag, "", "", "the prompt is plain text, without a template", kRun, nullptr, nullptr},
    {"special", T::flag, "", "", "control tokens spelled in raw text are these tokens", kRun | kScore | kTokenize, nullptr, nullptr},
    {"messages", T::text, "FILE", "", "a conversation: an OpenAI body or its messages, as JSON (- is stdin)", kRun, nullptr, nullptr},
    {"tools", T::text, "FILE", "", "tools that may be called: an array, or a body with \"tools\", as JSON", kRun | kChat, nullptr, nullptr},
    {"jsonl", T::text, "FILE", "", "one conversation a line, one result a line (- is stdin)", kRun, nullptr, nullptr},
    {"sequences", T::integer, "N", "8", "lines of --jsonl that are answered at the same time", kRun, nullptr, nullptr},
    {"jsonl", T::flag, "", "", "stdin holds one JSON string a line; one array of ids a line comes out", kTokenize, nullptr, nullptr},
    // The engine.
    {"context", T::integer, "N", "what the model was made for", "tokens that a text may have", kOpens, nullptr, set_context},
    {"weights", T::text, "FORM", "auto", "auto (the file's own form; int8 for floats), int8, int4 or file; static unit: also palette4, palette6, palette8", kOpens | kConvert | kInspect, nullptr, set_weights},
    {"kv", T::text, "TYPE", "fp16", "fp16 or int8: how keys and values are held", kOpens, nullptr, set_kv},
    {"activations", T::text, "TYPE", "fp16", "what the static unit's matrix products read: fp16, or int8 to see what it costs", kOpens, nullptr, set_activations},
    {"unit", T::text, "NAME", "cpu", "cpu, reference, static or static:coreai (docs/static-programs.md)", kOpens, nullptr, set_unit},
    {"buckets", T::text, "LIST", "powers of two from 128 to the context", "K/V lengths of the static unit's programs, ascending", kOpens | kExport, nullptr, set_buckets},
    {"threads", T::integer, "N", "what this process may use", "threads of the CPU unit", kOpens | kConvert, nullptr, set_threads},
    {"speculate", T::text, "MODE", "auto", "drafts that the model verifies: auto, off, chain:N (N tokens) or tree:N (N rows of a call); changes no text", kGenerates, set_speculate, set_speculate_open},
    {"drafter", T::text, "PATH", "drafter/ beside the model", "a DSpark drafter for this model: a folder or a .gguf file", kGenerates | kBench | kProfile, nullptr, set_drafter},
    {"no-cache", T::flag, "", "", "neither takes packed weights from the cache nor puts them there", kOpens, nullptr, nullptr},
    // Tools of the trade.
    {"draft", T::text, "WHAT", "", "model: drafting over --jsonl, mode against mode; oracle:TRACE: made-up drafts, width against width (docs/bench.md)", kBench, nullptr, nullptr},
    {"jsonl", T::text, "FILE", "", "prompts of --draft model and --sequences: a conversation, or {\"prompt_ids\"}, a line", kBench, nullptr, nullptr},
    {"modes", T::text, "LIST", "off,chain:9,tree:16,tree:24,tree:48,auto", "modes of drafting that are compared", kBench, nullptr, nullptr},
    {"sources", T::text, "NAME", "all", "what drafts: all, ngram or dspark", kBench, nullptr, nullptr},
    {"sequences", T::text, "LIST", "", "answers as many prompts together, a row for each number", kBench, nullptr, nullptr},
    {"temperature", T::number, "X", "0 and 0.8", "of the answers of --draft model", kBench, nullptr, nullptr},
    {"max-tokens", T::integer, "N", "128", "ends an answer of --draft model or --sequences after N tokens", kBench, nullptr, nullptr},
    {"rounds", T::integer, "N", "5; 7 for calls, 3 for --sequences, 1 for oracle", "medians are taken over as many", kBench | kProfile, nullptr, nullptr},
    {"trace", T::text, "FILE", "", "--draft model writes what the drafter hit, for --draft oracle:FILE", kBench, nullptr, nullptr},
    {"decode", T::integer, "N", "32", "tokens that are decoded", kBench, nullptr, nullptr},
    {"decode", T::flag, "", "", "stdin holds token ids, the output is their text", kTokenize, nullptr, nullptr},
    {"for", T::text, "UNIT", "cpu", "what the weights are written for: cpu, or npu (int8, one scale an output: docs/static-programs.md)", kConvert, nullptr, nullptr},
    {"calibrate", T::text, "FILE", "", "--for npu: chooses powers of two so that fp16 holds what the model computes on this text (as fidelity's --text)", kConvert, nullptr, nullptr},
    {"program", T::flag, "", "", "prints the program of the model", kInspect, nullptr, nullptr},
    {"verify", T::flag, "", "", "reads every byte and checks it", kInspect, nullptr, nullptr},
    {"rows", T::text, "LIST", "1,2,4,8,16,24,32,64", "rows of the calls that are timed", kBench, nullptr, nullptr},
    {"prefill", T::integer, "N", "512", "tokens of prompt that are timed", kBench, nullptr, nullptr},
    {"against", T::text, "REFERENCE", "", "the model whose choices count as right: a folder or a .gguf file", kFidelity, nullptr, nullptr},
    {"against-unit", T::text, "NAME", "reference", "the unit that runs it", kFidelity, nullptr, nullptr},
    {"against-weights", T::text, "FORM", "auto", "the form of its weights, as --weights", kFidelity, nullptr, nullptr},
    {"against-kv", T::text, "TYPE", "fp16", "how it holds keys and values, as --kv", kFidelity, nullptr, nullptr},
    {"text", T::text, "FILE", "", "what both read: NAME.jsonl holds a conversation, or {\"prompt_ids\", \"ids\"}, a line; else plain text (- is stdin)", kFidelity, nullptr, nullptr},
    {"positions", T::integer, "N", "all", "ends with the text that reaches as many of the assistant's positions (of a plain text: positions)", kFidelity, nullptr, nullptr},
    {"fail-below", T::number, "P", "", "exit code 1 where fewer than P percent of the assistant's choices (of a plain text: of all) agree", kFidelity, nullptr, nullptr},
    {"depth", T::integer, "N", "0", "tokens that the state holds before", kBench, nullptr, nullptr},
    {"kv-writes", T::text, "FORM", "place", "how new K/V get into states: place, delta (as outputs; for Core ML) or dynamic (docs/static-programs.md)", kExport, nullptr, nullptr},
    {"weights", T::text, "FORM", "int8", "int8 (one scale an output) or fp16", kExport, nullptr, nullptr},
    {"drafter", T::text, "PATH", "", "exports this drafter of MODEL instead of MODEL", kExport, nullptr, nullptr},
    // Output.
    {"stats", T::flag, "", "", "times and counts on stderr at the end", kRun | kChat, nullptr, nullptr},
    {"json", T::flag, "", "", "one JSON object on stdout", kRun | kScore | kTokenize | kInspect | kConvert | kVerify | kUnits | kCache | kBench | kProfile | kRender | kFidelity | kExport, nullptr, nullptr},
    {"quiet", T::flag, "", "", "no progress and no notices on stderr", kRun | kScore | kChat | kConvert | kVerify | kBench | kProfile | kFidelity | kExport, nullptr, nullptr},
};

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x == '_' ? '-' : x) == (y == '_' ? '-' : y); });
}

Status wrong(const OptionSpec& spec, const std::string& shown, const std::string& expected, const Value& found) {
  std::string is = found.type_name();
  if (found.is_string()) is = "\"" + found.as_string().substr(0, 60) + "\"";
  return invalid(shown + ": expected " + expected + ", found " + is, body_key(spec));
}

Result<Value> check_biases(const OptionSpec& spec, const Value& value, const std::string& shown) {
  if (!value.is_object()) return wrong(spec, shown, "an object of token ids and numbers", value);
  for (const auto& [key, bias] : value.as_object())
    if (!bias.is_number()) return wrong(spec, shown, "a number for token " + key, bias);
  return value;
}

Result<Value> check_texts(const OptionSpec& spec, const Value& value, const std::string& shown) {
  if (value.is_string()) return Value(Value::Array{value});
  if (!value.is_array()) return wrong(spec, shown, "a string or an array of strings", value);
  for (const Value& s : value.as_array())
    if (!s.is_string()) return wrong(spec, shown, "strings", s);
  return value;
}

template <typename N>
bool read_number(std::string_view text, N& out) {
  if (text.starts_with("+")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

std::span<const OptionSpec> option_table() { return kTable; }

const OptionSpec* find_option(std::string_view name, uint32_t commands) {
  for (const OptionSpec& spec : kTable)
    if ((spec.commands & commands) != 0 && same_name(spec.name, name)) return &spec;
  return nullptr;
}

std::string body_key(const OptionSpec& spec) {
  std::string key = spec.name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

Result<Value> check_option(const OptionSpec& spec, const Value& value, const std::string& shown) {
  switch (spec.type) {
    case OptionType::flag:
      if (!value.is_bool()) return wrong(spec, shown, "true or false", value);
      return value;
    case OptionType::integer:
      if (value.is_double() && value.as_double() == std::floor(value.as_double()) && std::fabs(value.as_double()) < 9e15)
        return Value(static_cast<int64_t>(value.as_double()));
      if (!value.is_int()) return wrong(spec, shown, "a whole number", value);
      return value;
    case OptionType::number:
      if (!value.is_number()) return wrong(spec, shown, "a number", value);
      return value;
    case OptionType::text:
      if (!value.is_string()) return wrong(spec, shown, "a string", value);
      return value;
    case OptionType::texts: return check_texts(spec, value, shown);
    case OptionType::biases: return check_biases(spec, value, shown);
  }
  return value;
}

Result<Value> parse_option(const OptionSpec& spec, std::string_view text) {
  const std::string shown = std::string("--") + spec.name;
  switch (spec.type) {
    case OptionType::flag: return Value(true);
    case OptionType::integer: {
      int64_t n = 0;
      if (!read_number(text, n)) return wrong(spec, shown, "a whole number of at most 18 digits", text);
      return Value(n);
    }
    case OptionType::number: {
      double x = 0;
      if (!read_number(text, x) || !std::isfinite(x)) return wrong(spec, shown, "a number", text);
      return Value(x);
    }
    case OptionType::text:
    case OptionType::texts: return Value(text);
    case OptionType::biases: {
      const size_t colon = text.find(':');
      int32_t id = 0;
      double x = 0;
      if (colon == std::string_view::npos || !read_number(text.substr(0, colon), id) || !read_number(text.substr(colon + 1), x))
        return wrong(spec, shown, "ID:X, as in 17:-2.5", text);
      return Value(Value::Object{{std::to_string(id), x}});
    }
  }
  return Value();
}

std::string nearest(std::string_view wrong_name, std::span<const std::string> names) {
  std::string best;
  size_t least = std::max<size_t>(2, wrong_name.size() / 3) + 1;
  for (const std::string& name : names) {
    std::vector<size_t> row(name.size() + 1);
    for (size_t j = 0; j <= name.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= wrong_name.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= name.size(); ++j) {
        const size_t change = diagonal + (wrong_name[i - 1] == name[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row[name.size()] < least) {
      least = row[name.size()];
      best = name;
    }
  }
  return best;
}

}  // namespace espalier
