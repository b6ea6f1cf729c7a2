// inspect: what a model is made of.
#include "convert/inspect.h"

#include "base/json.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "convert/convert.h"
#include "engine/place_model.h"
#include "engine/text_model.h"
#include "models/model.h"

namespace espalier::cli {
namespace {

Value chat_json(const ChatFormat& chat) {
  Value v = Value::object();
  const TemplateCapabilities& c = chat.capabilities();
  v.set("system", c.system);
  v.set("tools", c.tools);
  v.set("tool_calls", c.tool_calls);
  v.set("tool_results", c.tool_results);
  v.set("opens_thought", c.opens_thought);
  v.set("mentions_thought", c.mentions_thought);
  v.set("thinking_switch", c.thinking_switch.empty() ? Value() : Value(c.thinking_switch));
  v.set("end_token", chat.end_id());
  return v;
}

// What tokenizer and template can do; null and a notice where there are none.
void add_text(const std::string& path, Value& report) {
  auto text = open_text_model(path);
  const bool chats = text.ok() && text->chat;
  report.set("chat", chats ? chat_json(*text->chat) : Value());
  if (!chats) report.find("notices")->push(text.ok() ? text->no_chat : text.status().message());
}

// Reads every byte. The sentences say what was found sound.
Result<std::vector<std::string>> verified(const Checkpoint& checkpoint) {
  if (is_converted(checkpoint.kind())) return verify_converted(checkpoint);
  std::vector<std::string> findings;
  const Value hashes = content_hashes(checkpoint);
  for (const Value& file : hashes.as_array())
    findings.push_back(file.find("name")->as_string() + ": read whole, sha256 " + file.find("sha256")->as_string());
  return findings;
}

}  // namespace

int inspect_command(const Arguments& args) {
  end_on_interrupt();
  auto form = weights_form(args.text("weights").value_or("auto"));
  if (!form.ok()) return fail(args, form.status());
  auto checkpoint = Checkpoint::open(args.positionals[0]);
  if (!checkpoint.ok()) return fail(args, checkpoint.status());
  auto plan = plan_model(*checkpoint);
  if (!plan.ok()) return fail(args, plan.status());
  auto report = inspect_model(*checkpoint, *plan, *form);
  if (!report.ok()) return fail(args, report.status());
  add_text(args.positionals[0], *report);
  std::string text = inspect_text(*report);
  if (args.flag("verify")) {
    auto findings = verified(*checkpoint);
    if (!findings.ok()) return fail(args, findings.status());
    Value list = Value::array();
    for (const std::string& f : *findings) {
      list.push(f);
      text += "verified: " + f + "\n";
    }
    report->set("verified", std::move(list));
  }
  if (args.flag("program")) {
    text = dump(plan->program);
    report->set("program", text);
  }
  if (args.flag("json")) return print_json(*report);
  out(text);
  return finish_output(kExitOk);
}

}  // namespace espalier::cli
