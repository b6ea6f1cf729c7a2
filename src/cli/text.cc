// score, render, tokenize: the text side of a model.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/json.h"
#include "base/lines.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "engine/answer_json.h"
#include "engine/body.h"
#include "engine/prompt.h"
#include "engine/text_model.h"

namespace espalier::cli {
namespace {

Value id_array(std::span<const int32_t> ids) {
  Value out = Value::array();
  for (const int32_t id : ids) out.push(id);
  return out;
}

Result<int32_t> checked_id(int64_t id) {
  if (id < 0 || id > INT32_MAX) return invalid("expected token ids, found " + std::to_string(id), "text");
  return static_cast<int32_t>(id);
}

// Ids as tokenize prints them, or as a JSON array.
Result<std::vector<int32_t>> read_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    if (std::string_view(" \t\r\n,[]").find(text[at]) != std::string_view::npos) {
      ++at;
      continue;
    }
    int64_t id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (error != std::errc()) return invalid("expected token ids, found \"" + std::string(text.substr(at, 20)) + "\"", "text");
    ESPALIER_ASSIGN(const int32_t checked, checked_id(id));
    ids.push_back(checked);
    at = static_cast<size_t>(end - text.data());
  }
  return ids;
}

Result<Value> convert_line(const Tokenizer& tokenizer, const Arguments& args, const std::string& line) {
  ESPALIER_ASSIGN(const Value value, parse_json(line));
  if (args.flag("decode")) {
    if (!value.is_array()) return invalid(std::string("expected an array of token ids, found ") + value.type_name(), "text");
    std::vector<int32_t> ids;
    for (const Value& v : value.as_array()) {
      if (!v.is_int()) return invalid(std::string("expected token ids, found ") + v.type_name(), "text");
      ESPALIER_ASSIGN(const int32_t id, checked_id(v.as_int()));
      ids.push_back(id);
    }
    return Value(tokenizer.decode(ids, false));
  }
  if (!value.is_string()) return invalid(std::string("expected a string, found ") + value.type_name(), "text");
  ESPALIER_ASSIGN(const std::vector<int32_t> ids, tokenizer.encode(value.as_string(), {args.flag("special"), false}));
  return id_array(ids);
}

int tokenize_lines(const Arguments& args, const Tokenizer& tokenizer, const std::string& text) {
  for (const auto& [line, number] : record_lines(text)) {
    auto value = convert_line(tokenizer, args, std::string(line));
    if (!value.ok()) return fail(args, std::move(value).status().with_context("line " + std::to_string(number)));
    if (!out(to_json(*value) + "\n")) break;
  }
  return finish_output(kExitOk);
}

int print_ids(const Arguments& args, const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  if (args.flag("json")) {
    Value tokens = Value::array();
    for (const int32_t id : ids) tokens.push(std::string(tokenizer.token_bytes(id)));
    Value object = Value::object();
    object.set("token_ids", id_array(ids));
    object.set("tokens", std::move(tokens));
    return print_json(object);
  }
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  out(text + "\n");
  return finish_output(kExitOk);
}

double perplexity(const std::vector<Score>& scores) {
  double sum = 0;
  for (const Score& s : scores) sum -= static_cast<double>(s.logprob);
  return std::exp(sum / static_cast<double>(scores.size()));
}

Value score_json(const Engine& engine, const std::vector<int32_t>& ids, const std::vector<Score>& scores) {
  Value list = Value::array();
  for (const Score& s : scores) list.push(to_json_value(s));
  Value object = Value::object();
  object.set("token_ids", id_array(ids));
  object.set("logprobs", std::move(list));
  object.set("perplexity", perplexity(scores));
  object.set("unit", engine.info().unit);
  object.set("kernels", engine.info().kernels);
  object.set("weights", engine.info().weights);
  object.set("kv", engine.info().kv);
  return object;
}

}  // namespace

int score_command(const Arguments& args) {
  auto text = read_all_input();
  if (!text.ok()) return fail(args, text.status());
  auto engine = open_with_progress(args, args.positionals[0]);
  if (!engine.ok()) return fail(args, engine.status());
  auto ids = engine->tokenize(*text, args.flag("special"), true);
  if (!ids.ok()) return fail(args, ids.status());
  Progress progress("scoring", args.flag("quiet") || !err_is_terminal());
  const int64_t alternatives = args.integer("logprobs").value_or(0);
  if (alternatives < 0 || alternatives > 100)
    return fail(args, invalid("logprobs: expected 0 to 100 alternatives, found " + std::to_string(alternatives), "logprobs"));
  auto scores = engine->score(*ids, static_cast<int32_t>(alternatives), [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return !interrupted();
  });
  progress.clear();
  if (!scores.ok()) return fail(args, scores.status());
  if (args.flag("json")) return print_json(score_json(*engine, *ids, *scores));
  char line[128];
  snprintf(line, sizeof line, "perplexity %.4f over %zu tokens\n", perplexity(*scores), scores->size());
  out(line);
  return finish_output(kExitOk);
}

int render_command(const Arguments& args) {
  end_on_interrupt();
  auto text = read_all_input();
  if (!text.ok()) return fail(args, text.status());
  auto value = parse_json(*text);
  if (!value.ok()) return fail(args, Status(Code::invalid_argument, "stdin: " + value.status().message(), "messages"));
  auto body = read_body(*value, {});
  if (!body.ok()) return fail(args, body.status());
  auto model = open_text_model(args.positionals[0]);
  if (!model.ok()) return fail(args, model.status());
  if (!model->chat) return fail(args, Status(Code::not_found, model->no_chat, "messages"));
  auto chat = render_prompt(*model->chat, body->prompt);
  if (!chat.ok()) return fail(args, chat.status());
  if (!args.flag("json")) {
    out(chat->text.text());
    return finish_output(kExitOk);
  }
  auto ids = model->tokenizer.encode(chat->text);
  if (!ids.ok()) return fail(args, ids.status());
  Value object = Value::object();
  object.set("text", chat->text.text());
  object.set("token_ids", id_array(*ids));
  Value warnings = Value::array();
  for (const std::string& w : body->warnings) warnings.push(w);
  for (const std::string& w : chat->warnings) warnings.push(w);
  object.set("warnings", std::move(warnings));
  return print_json(object);
}

int tokenize_command(const Arguments& args) {
  end_on_interrupt();
  auto model = open_text_model(args.positionals[0]);
  if (!model.ok()) return fail(args, model.status());
  auto text = read_all_input();
  if (!text.ok()) return fail(args, text.status());
  if (args.flag("jsonl")) return tokenize_lines(args, model->tokenizer, *text);
  if (!args.flag("decode")) {
    auto ids = model->tokenizer.encode(*text, {args.flag("special"), false});
    return ids.ok() ? print_ids(args, model->tokenizer, *ids) : fail(args, ids.status());
  }
  auto ids = read_ids(*text);
  if (!ids.ok()) return fail(args, ids.status());
  const std::string decoded = model->tokenizer.decode(*ids, false);
  if (args.flag("json")) {
    Value object = Value::object();
    object.set("text", decoded);
    return print_json(object);
  }
  out(decoded);
  return finish_output(kExitOk);
}

}  // namespace espalier::cli
