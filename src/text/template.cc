#include "text/template.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <exception>

#include "text/jinja_eval.h"

namespace espalier {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system", "developer", "user", "assistant", "tool", "function"};
constexpr std::array<std::string_view, 8> kReserved = {"messages", "tools",     "documents", "add_generation_prompt",
                                                       "bos_token", "eos_token", "pad_token", "unk_token"};

Status failure(Code code, const jinja::JinjaFailure& f) {
  return {code, "chat template, line " + std::to_string(std::max(f.line, 1)) + ": " + f.message};
}

// A message whose role is one of a closed list shows that role as the template's own text: templates build control
// tokens from it ('<|' + role + '|>'), and a client can't choose other text.
jinja::JinjaValue message_value(const Value& message) {
  if (!message.is_object()) return jinja::from_value(message);
  std::vector<std::pair<jinja::JinjaValue, jinja::JinjaValue>> items;
  for (const auto& [k, v] : message.as_object()) {
    const bool role = k == "role" && v.is_string() && std::find(kRoles.begin(), kRoles.end(), v.as_string()) != kRoles.end();
    items.emplace_back(jinja::JinjaValue::data(k), role ? jinja::JinjaValue::control(v.as_string()) : jinja::from_value(v));
  }
  return jinja::JinjaValue::dict(std::move(items));
}

jinja::JinjaValue messages_value(const Value& messages) {
  if (!messages.is_array()) return jinja::from_value(messages);
  std::vector<jinja::JinjaValue> items;
  for (const Value& m : messages.as_array()) items.push_back(message_value(m));
  return jinja::JinjaValue::list(std::move(items));
}

void define_inputs(jinja::Evaluator& ev, const ChatInput& in) {
  if (in.kwargs.is_object())
    for (const auto& [k, v] : in.kwargs.as_object()) ev.define(k, jinja::from_value(v));
  ev.define("messages", messages_value(in.messages));
  ev.define("tools", jinja::from_value(in.tools));
  ev.define("documents", {});
  ev.define("add_generation_prompt", in.add_generation_prompt);
  const auto token = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) ev.define(name, jinja::JinjaValue::control(text));
  };
  token("bos_token", in.bos_token);
  token("eos_token", in.eos_token);
  token("pad_token", in.pad_token);
  token("unk_token", in.unk_token);
}

}  // namespace

CivilTime local_time_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm tm{};
  localtime_r(&now, &tm);
  return {tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec};
}

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  try {
    ChatTemplate t;
    t.tree_ = std::make_shared<const jinja::Tree>(jinja::parse_template(source));
    t.source_ = std::make_shared<const std::string>(std::move(source));
    return t;
  } catch (const jinja::JinjaFailure& f) {
    return failure(Code::corrupt, f);
  } catch (const std::exception& e) {
    return Status(Code::internal, std::string("chat template: ") + e.what());
  }
}

Result<MarkedText> ChatTemplate::render(const ChatInput& input) const {
  if (!input.kwargs.is_null() && !input.kwargs.is_object())
    return invalid(std::string("expected an object, found ") + input.kwargs.type_name(), "chat_template_kwargs");
  if (input.kwargs.is_object())
    for (const auto& [k, v] : input.kwargs.as_object())
      if (std::find(kReserved.begin(), kReserved.end(), k) != kReserved.end())
        return invalid("'" + k + "' is set by the engine and can't be given as a template option", "chat_template_kwargs." + k);
  try {
    jinja::Evaluator ev(*tree_, input.limits, input.now ? *input.now : local_time_now());
    define_inputs(ev, input);
    return ev.run();
  } catch (const jinja::JinjaFailure& f) {
    return failure(Code::invalid_argument, f);
  } catch (const std::exception& e) {
    return Status(Code::internal, std::string("chat template: ") + e.what());
  }
}

bool ChatTemplate::reads(std::string_view name) const {
  return std::binary_search(tree_->names.begin(), tree_->names.end(), name);
}

bool ChatTemplate::mentions(std::string_view text) const {
  return std::any_of(tree_->literals.begin(), tree_->literals.end(),
                     [&](const std::string& s) { return s.find(text) != std::string::npos; });
}

bool ends_in_thought(const MarkedText& prompt) {
  static constexpr std::string_view kOpen = "<think>";
  const std::string& s = prompt.text();
  const size_t last = s.find_last_not_of(" \t\r\n");
  if (last == std::string::npos || last + 1 < kOpen.size()) return false;
  const size_t begin = last + 1 - kOpen.size();
  return s.compare(begin, kOpen.size(), kOpen) == 0 && prompt.is_control(begin, last + 1);
}

}  // namespace espalier
