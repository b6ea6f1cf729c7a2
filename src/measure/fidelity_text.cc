#include "measure/fidelity_text.h"

#include <algorithm>

#include "base/json.h"
#include "base/lines.h"
#include "engine/body.h"
#include "engine/prompt.h"

namespace espalier {
namespace {

struct Span {
  size_t begin, end;  // bytes of a rendered text
};

struct Rendered {
  MarkedText text;
  std::vector<Span> turns;  // the assistant's
  size_t unplaced = 0;      // turns that the whole text writes otherwise than they were written in their place
};

Result<Rendered> render(const ChatFormat& chat, const Prompt& prompt) {
  ESPALIER_ASSIGN(const Value messages, parse_messages(prompt.messages));
  ESPALIER_ASSIGN(const Value tools, parse_tools(prompt.tools));
  ESPALIER_ASSIGN(const Value kwargs, parse_kwargs(prompt.template_kwargs));
  ESPALIER_ASSIGN(RenderedChat whole, chat.render(messages, tools, kwargs, false));
  Rendered out{std::move(whole.text), {}, 0};
  const std::string& all = out.text.text();
  Value::Array head;
  for (const Value& message : messages.as_array()) {
    const Value* role = message.find("role");
    const bool is_turn = role != nullptr && role->is_string() && role->as_string() == "assistant";
    if (!is_turn || head.empty()) {
      head.push_back(message);
      continue;
    }
    ESPALIER_ASSIGN(const RenderedChat before, chat.render(Value(head), tools, kwargs, true));
    head.push_back(message);
    ESPALIER_ASSIGN(const RenderedChat after, chat.render(Value(head), tools, kwargs, false));
    const std::string &asked = before.text.text(), &told = after.text.text();
    if (all.starts_with(told) && told.starts_with(asked)) out.turns.push_back({asked.size(), told.size()});
    else ++out.unplaced;
  }
  return out;
}

// By token: it begins in a turn, and no later than the token that ends the turn. Empty where the tokens' bytes are not the text's.
std::vector<uint8_t> mark(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const std::string& text, const std::vector<Span>& turns, int32_t end_id) {
  std::vector<uint8_t> marks(ids.size());
  size_t at = 0, turn = 0;
  bool ended = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    while (turn < turns.size() && at >= turns[turn].end) {
      ++turn;
      ended = false;
    }
    if (turn < turns.size() && at >= turns[turn].begin && !ended) {
      marks[i] = 1;
      ended = ids[i] == end_id;
    }
    const std::string_view bytes = tokenizer.token_bytes(ids[i]);
    if (text.compare(at, bytes.size(), bytes) != 0) return {};
    at += bytes.size();
  }
  return at == text.size() ? marks : std::vector<uint8_t>();
}

Result<FidelityText> read_conversation(const TextReader& reader, const Value& record, size_t& unplaced) {
  if (reader.chat == nullptr) return invalid(reader.no_chat, "messages");
  ESPALIER_ASSIGN(const Body body, read_body(record, {}));
  ESPALIER_ASSIGN(Rendered rendered, render(*reader.chat, body.prompt));
  FidelityText out;
  ESPALIER_ASSIGN(out.ids, reader.tokenizer->encode(rendered.text));
  std::vector<uint8_t> marks = mark(*reader.tokenizer, out.ids, rendered.text.text(), rendered.turns, reader.chat->end_id());
  unplaced += marks.empty() ? rendered.unplaced + rendered.turns.size() : rendered.unplaced;
  marks.resize(out.ids.size());
  if (!marks.empty()) out.assistant.assign(marks.begin() + 1, marks.end());
  return out;
}

Status append_ids(const Value& list, const char* key, int32_t vocabulary, std::vector<int32_t>& ids) {
  if (!list.is_array()) return invalid(std::string(key) + ": expected an array of token ids, found " + list.type_name(), key);
  for (const Value& id : list.as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= vocabulary)
      return invalid(std::string(key) + ": expected token ids below " + std::to_string(vocabulary), key);
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  return {};
}

Result<FidelityText> read_ids(const TextReader& reader, const Value& record) {
  FidelityText out;
  ESPALIER_TRY(append_ids(*record.find("prompt_ids"), "prompt_ids", reader.vocabulary, out.ids));
  const size_t prompt = out.ids.size();
  if (const Value* answer = record.find("ids")) ESPALIER_TRY(append_ids(*answer, "ids", reader.vocabulary, out.ids));
  if (out.ids.size() > 1) out.assistant.resize(out.ids.size() - 1);
  for (size_t p = prompt == 0 ? 0 : prompt - 1; p < out.assistant.size(); ++p) out.assistant[p] = 1;
  return out;
}

Result<FidelityText> read_record(const TextReader& reader, std::string_view line, size_t& unplaced) {
  ESPALIER_ASSIGN(const Value record, parse_json(line));
  if (record.is_object() && record.find("prompt_ids") != nullptr) return read_ids(reader, record);
  return read_conversation(reader, record, unplaced);
}

Status read_lines(const TextReader& reader, const std::string& text, const std::string& path, int64_t context, FidelityTexts& out) {
  size_t unplaced = 0, cut = 0;
  for (const auto& [line, number] : record_lines(text)) {
    const std::string name = "line " + std::to_string(number);
    Result<FidelityText> read = read_record(reader, line, unplaced);
    if (!read.ok()) return std::move(read).status().with_context(path + ", " + name);
    FidelityText one = std::move(read).value();
    if (one.ids.size() < 2) return invalid(path + ", " + name + ": expected a text of at least two tokens", "text");
    if (static_cast<int64_t>(one.ids.size()) > context) {
      ++cut;
      one.ids.resize(static_cast<size_t>(context));
      one.assistant.resize(one.ids.size() - 1);
    }
    one.name = name;
    out.texts.push_back(std::move(one));
  }
  if (cut > 0) out.notices.push_back(std::to_string(cut) + " texts are longer than the context and end at its " + std::to_string(context) + " tokens");
  if (unplaced > 0)
    out.notices.push_back(std::to_string(unplaced) + " of the assistant's turns are written otherwise in the whole conversation than in their place; they count among all positions only");
  return {};
}

Status read_raw(const TextReader& reader, const std::string& text, const std::string& path, int64_t context, FidelityTexts& out) {
  Result<std::vector<int32_t>> encoded = reader.tokenizer->encode(text);
  if (!encoded.ok()) return std::move(encoded).status().with_context(path);
  const std::vector<int32_t>& prefix = reader.tokenizer->prefix_ids();
  const size_t room = static_cast<size_t>(std::max<int64_t>(context - static_cast<int64_t>(prefix.size()), 2));
  for (size_t at = 0; at < encoded->size(); at += room) {
    FidelityText one;
    one.name = "piece " + std::to_string(out.texts.size() + 1);
    if (reader.tokenizer->add_bos()) one.ids = prefix;
    const size_t end = std::min(at + room, encoded->size());
    one.ids.insert(one.ids.end(), encoded->begin() + static_cast<ptrdiff_t>(at), encoded->begin() + static_cast<ptrdiff_t>(end));
    if (one.ids.size() < 2) break;
    one.assistant.resize(one.ids.size() - 1);
    out.texts.push_back(std::move(one));
  }
  if (out.texts.size() > 1) out.notices.push_back("the text is read in " + std::to_string(out.texts.size()) + " pieces of at most " + std::to_string(context) + " tokens");
  return {};
}

}  // namespace

TextReader text_reader(const Engine::Impl& engine) { return {&engine.tokenizer, engine.chat ? &*engine.chat : nullptr, engine.no_chat, engine.info.vocabulary}; }

Result<FidelityTexts> read_fidelity_texts(const TextReader& reader, const std::string& text, const std::string& path, int64_t context) {
  if (context < 2) return invalid("a context of " + std::to_string(context) + " tokens has no position to compare", "context");
  FidelityTexts out;
  ESPALIER_TRY(path.ends_with(".jsonl") ? read_lines(reader, text, path, context, out) : read_raw(reader, text, path, context, out));
  if (out.texts.empty()) return invalid(path + ": expected a text of at least two tokens", "text");
  return out;
}

}  // namespace espalier
