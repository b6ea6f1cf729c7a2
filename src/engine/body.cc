#include "engine/body.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "engine/options.h"

namespace espalier {
namespace {

// Keys that say nothing about the answer of one local model.
constexpr std::array<std::string_view, 9> kIgnored = {"model", "stream", "stream_options", "user", "metadata", "store", "service_tier",
                                                     "safety_identifier", "prompt_cache_key"};

Status no(const std::string& key, const std::string& why) { return unsupported(key + ": " + why, key); }

// Keys with a meaning of their own. Nothing: not one of them.
enum class Taken { no, yes };

Result<Taken> take_special(const std::string& key, const Value& value, const Value& body, Body& out) {
  if (key == "messages" || std::find(kIgnored.begin(), kIgnored.end(), key) != kIgnored.end()) return Taken::yes;
  if (value.is_null()) return Taken::yes;
  if (key == "tools") {
    if (!value.is_array()) return invalid(std::string("tools: expected an array, found ") + value.type_name(), "tools");
    if (!value.as_array().empty()) out.prompt.tools = to_json(value);
    return Taken::yes;
  }
  if (key == "chat_template_kwargs") {
    if (!value.is_object()) return invalid(key + ": expected an object, found " + value.type_name(), key);
    out.prompt.template_kwargs = to_json(value);
    return Taken::yes;
  }
  if (key == "max_completion_tokens") {
    if (!value.is_int()) return invalid(key + ": expected a whole number, found " + value.type_name(), key);
    out.options.max_tokens = value.as_int();
    return Taken::yes;
  }
  // OpenAI's chat form: "logprobs": true with "top_logprobs": 5. A number is taken as ours.
  if (key == "logprobs" && value.is_bool()) {
    const Value* top = body.find("top_logprobs");
    if (top != nullptr && !top->is_null() && !top->is_int()) return invalid(std::string("top_logprobs: expected a whole number, found ") + top->type_name(), "top_logprobs");
    if (value.as_bool()) out.options.logprobs = top != nullptr && top->is_int() ? top->as_int() : 0;
    return Taken::yes;
  }
  if (key == "top_logprobs") {
    const Value* logprobs = body.find("logprobs");
    if (logprobs == nullptr || logprobs->is_null()) return invalid("top_logprobs: needs \"logprobs\": true", key);
    return Taken::yes;
  }
  if (key == "n") {
    if (!value.is_int() || value.as_int() != 1) return no(key, "only 1 answer is given");
    return Taken::yes;
  }
  if (key == "response_format") {
    const Value* type = value.find("type");
    if (type == nullptr || !type->is_string() || type->as_string() != "text") return no(key, "only {\"type\": \"text\"} is supported");
    return Taken::yes;
  }
  if (key == "tool_choice") {
    if (value.is_string() && value.as_string() == "none") {
      out.prompt.tools.clear();
      return Taken::yes;
    }
    if (!value.is_string() || value.as_string() != "auto") return no(key, "only \"auto\" and \"none\" are supported");
    return Taken::yes;
  }
  return Taken::no;
}

}  // namespace

Result<Body> read_body(const Value& body, const GenerateOptions& defaults) {
  Body out;
  out.options = defaults;
  const Value* messages = body.is_array() ? &body : body.find("messages");
  if (!body.is_array() && !body.is_object())
    return invalid(std::string("expected an object with \"messages\", found ") + body.type_name(), "messages");
  if (messages == nullptr) return invalid("messages: expected an array, found nothing", "messages");
  if (!messages->is_array()) return invalid(std::string("messages: expected an array, found ") + messages->type_name(), "messages");
  if (messages->as_array().empty()) return invalid("messages: expected at least one message, found none", "messages");
  out.prompt.messages = to_json(*messages);
  if (body.is_array()) return out;
  ESPALIER_TRY(read_options(body, out));
  return out;
}

Status read_options(const Value& body, Body& out) {
  if (!body.is_object()) return invalid(std::string("options: expected an object, found ") + body.type_name(), "options");
  for (const auto& [key, value] : body.as_object()) {
    ESPALIER_ASSIGN(const Taken taken, take_special(key, value, body, out));
    if (taken == Taken::yes) continue;
    const OptionSpec* spec = find_option(key, kRun);
    if (spec == nullptr || spec->generate == nullptr || key.find('-') != std::string::npos) {
      out.warnings.push_back("\"" + key.substr(0, 80) + "\" is not known here and was ignored");
      continue;
    }
    ESPALIER_ASSIGN(const Value checked, check_option(*spec, value, key));
    ESPALIER_TRY(spec->generate(out.options, checked));
  }
  // "tool_choice" may stand before or behind "tools".
  const Value* choice = body.find("tool_choice");
  if (choice != nullptr && choice->is_string() && choice->as_string() == "none") out.prompt.tools.clear();
  return {};
}

}  // namespace espalier
