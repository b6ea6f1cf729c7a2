#include "text/tool_calls.h"

#include <algorithm>

#include "base/json.h"
#include "text/python_literal.h"

namespace espalier {
namespace {

constexpr std::string_view kLineEnds = "\r\n", kSpace = " \t\r\n";
constexpr size_t kMaxWarnings = 16;

// How many bytes at the end of `text` may begin `marker`.
size_t begun(std::string_view text, std::string_view marker) {
  if (marker.empty()) return 0;
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n)
    if (text.ends_with(marker.substr(0, n))) return n;
  return 0;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

const Value* find_tool(const Value& tools, std::string_view name) {
  if (!tools.is_array()) return nullptr;
  for (const Value& tool : tools.as_array()) {
    const Value* function = tool.find("function");
    if (function == nullptr) function = &tool;
    const Value* its_name = function->find("name");
    if (its_name != nullptr && its_name->is_string() && its_name->as_string() == name) return function;
  }
  return nullptr;
}

struct Written {
  std::string name;
  std::vector<Value> positional;
  Value::Object named;
  std::string source;  // as the model wrote it
};

Status json_call(const Value& v, Written& out) {
  const Value* call = v.find("function") != nullptr && v.find("function")->is_object() ? v.find("function") : &v;
  const Value* name = call->find("name");
  if (name == nullptr) name = call->find("function");
  if (name == nullptr || !name->is_string()) return corrupt("a JSON call needs a \"name\"");
  const Value* arguments = call->find("arguments");
  if (arguments == nullptr) arguments = call->find("parameters");
  out.name = name->as_string();
  if (arguments == nullptr || arguments->is_null()) return {};
  Value parsed;
  if (arguments->is_string()) {
    ESPALIER_ASSIGN(parsed, parse_json(arguments->as_string()));
    arguments = &parsed;
  }
  if (!arguments->is_object()) return corrupt("the arguments of a JSON call must be an object");
  out.named = arguments->as_object();
  return {};
}

// One object, an array of them, or several objects, one after another.
Status json_calls(std::string_view text, std::vector<Written>& out) {
  Result<Value> whole = parse_json(text);
  if (!whole.ok()) {  // Python's quotes and words inside JSON's form
    Result<Value> literal = parse_python_literal(text);
    if (literal.ok()) whole = std::move(literal);
  }
  if (whole.ok()) {
    const Value::Array one = whole->is_array() ? Value::Array{} : Value::Array{*whole};
    for (const Value& v : whole->is_array() ? whole->as_array() : one) {
      Written w;
      ESPALIER_TRY(json_call(v, w));
      w.source = to_json(v);
      out.push_back(std::move(w));
    }
    return out.empty() ? corrupt("an empty list of calls") : Status();
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t cut = rest.find_first_of(";\n");
    const std::string_view piece = trimmed(rest.substr(0, cut));
    rest = cut == std::string_view::npos ? std::string_view{} : rest.substr(cut + 1);
    if (piece.empty()) continue;
    if (piece.size() == text.size()) return std::move(whole).status();
    ESPALIER_TRY(json_calls(piece, out));
  }
  return out.empty() ? corrupt("no call") : Status();
}

Status python_calls(std::string_view text, std::vector<Written>& out) {
  ESPALIER_ASSIGN(std::vector<PythonCall> calls, parse_python_calls(text));
  for (PythonCall& c : calls)
    out.push_back({std::move(c.name), std::move(c.positional), std::move(c.named), std::string(text.substr(c.begin, c.end - c.begin))});
  return {};
}

Status read_calls(std::string_view text, std::vector<Written>& out) {
  const std::string_view t = trimmed(text);
  const std::string_view inner = t.starts_with('[') ? trimmed(t.substr(1)) : t;
  return inner.starts_with('{') ? json_calls(t, out) : python_calls(t, out);
}

}  // namespace

std::string ParsedCall::arguments_json() const { return to_json(arguments); }

OutputFormat find_output_format(const ChatTemplate& chat_template, const std::function<bool(std::string_view)>& is_token,
                                bool starts_in_thought) {
  OutputFormat f;
  f.starts_in_thought = starts_in_thought;
  f.thought_markers_are_tokens = is_token(f.thought_start) && is_token(f.thought_end);
  f.reasoning = starts_in_thought || chat_template.mentions(f.thought_end) || f.thought_markers_are_tokens;
  if (!chat_template.reads("tools")) return f;
  if (is_token("<|tool_call_start|>") && is_token("<|tool_call_end|>")) {
    f.calls = OutputFormat::Calls::enclosed;
    f.call_start = "<|tool_call_start|>";
    f.call_end = "<|tool_call_end|>";
  } else if (chat_template.mentions("<tool_call>") && !chat_template.mentions("<function=")) {
    f.calls = OutputFormat::Calls::enclosed;
    f.call_start = "<tool_call>";
    f.call_end = "</tool_call>";
    f.call_markers_are_tokens = is_token(f.call_start) && is_token(f.call_end);
  } else if (is_token("<|python_tag|>") && chat_template.mentions("\"parameters\"")) {
    f.calls = OutputFormat::Calls::bare_json;
    f.call_start = "<|python_tag|>";
  }
  return f;
}

Result<ParsedCall> check_call(const Value& tools, const std::string& name, const std::vector<Value>& positional, Value::Object named) {
  const Value* tool = find_tool(tools, name);
  if (tool == nullptr) return invalid("the tool '" + name.substr(0, 80) + "' was not offered");
  const Value* properties = tool->find_path("parameters.properties");
  const bool closed = properties != nullptr && properties->is_object();
  Value::Object arguments;
  if (!positional.empty()) {
    const size_t known = closed ? properties->as_object().size() : 0;
    if (positional.size() > known) return invalid("the tool '" + name + "' has no name for positional argument " + std::to_string(known + 1));
    for (size_t i = 0; i < positional.size(); ++i) arguments.emplace_back(properties->as_object()[i].first, positional[i]);
  }
  const Value* more = tool->find_path("parameters.additionalProperties");
  const bool open = more != nullptr && !(more->is_bool() && !more->as_bool());
  for (Value::Member& m : named) {
    const bool twice = std::any_of(arguments.begin(), arguments.end(), [&](const Value::Member& a) { return a.first == m.first; });
    if (twice) return invalid("the tool '" + name + "' got the argument '" + m.first.substr(0, 80) + "' twice");
    if (closed && !open && properties->find(m.first) == nullptr)
      return invalid("the tool '" + name + "' has no argument '" + m.first.substr(0, 80) + "'");
    arguments.push_back(std::move(m));
  }
  return ParsedCall{name, Value(std::move(arguments))};
}

OutputParser::OutputParser(OutputFormat format, Value tools)
    : format_(std::move(format)), tools_(std::move(tools)), mode_(format_.starts_in_thought ? Mode::thought : Mode::content) {}

std::vector<OutputPiece> OutputParser::push(std::string_view text, bool is_control) {
  if (is_control) {
    if (!held_.empty()) emit_text(std::exchange(held_, {}));
    if (!take_marker(text)) emit_text(text);
  } else {
    held_ += text;
    scan();
  }
  return std::exchange(out_, {});
}

std::vector<OutputPiece> OutputParser::finish() {
  if (!held_.empty()) emit_text(std::exchange(held_, {}));
  if (mode_ == Mode::call || mode_ == Mode::json) end_call();
  if (mode_ == Mode::thought && !line_ends_.empty()) {
    // The thought was cut: whether these line ends belong to its frame is unknown, so they stay.
    const std::string kept = std::exchange(line_ends_, {});
    emit(OutputPiece::Kind::reasoning, kept);
  }
  return std::exchange(out_, {});
}

// A token that is a marker, in a place where it means something.
bool OutputParser::take_marker(std::string_view text) {
  if (format_.reasoning && format_.thought_markers_are_tokens && mode_ != Mode::call) {
    if (text == format_.thought_start) return start_thought(), true;
    if (text == format_.thought_end) return end_thought(), true;
  }
  if (format_.calls == OutputFormat::Calls::none || !format_.call_markers_are_tokens) return false;
  if (text == format_.call_start) return start_call(), true;
  if (!format_.call_end.empty() && text == format_.call_end) {
    if (mode_ == Mode::call) end_call();
    return true;
  }
  return false;
}

// Finds markers in held_ where they are no tokens; keeps what may be the beginning of one.
void OutputParser::scan() {
  while (true) {
    size_t best = std::string::npos, length = 0, keep = 0;
    int which = -1;
    const auto look = [&](bool active, const std::string& marker, int id) {
      if (!active || marker.empty()) return;
      const size_t at = held_.find(marker);
      keep = std::max(keep, begun(held_, marker));
      if (at >= best) return;
      best = at;
      length = marker.size();
      which = id;
    };
    const bool thoughts = format_.reasoning && !format_.thought_markers_are_tokens;
    const bool enclosed = format_.calls == OutputFormat::Calls::enclosed && !format_.call_markers_are_tokens;
    look(thoughts && thought_may_open(), format_.thought_start, 0);
    look(thoughts && mode_ == Mode::thought, format_.thought_end, 1);
    look(enclosed && mode_ != Mode::call, format_.call_start, 2);
    look(enclosed && mode_ == Mode::call, format_.call_end, 3);
    if (which < 0) {
      const std::string certain = held_.substr(0, held_.size() - keep);
      held_.erase(0, certain.size());
      emit_text(certain);
      return;
    }
    const std::string before = held_.substr(0, best);
    held_.erase(0, best + length);
    emit_text(before);
    if (which == 0 && !thought_may_open()) emit_text(format_.thought_start);  // inside JSON that `before` began
    else if (which == 0) start_thought();
    else if (which == 1) end_thought();
    else if (which == 2) start_call();
    else end_call();
  }
}

// In content, and before JSON that is only held because white space came first.
bool OutputParser::thought_may_open() const {
  return mode_ == Mode::content || (mode_ == Mode::json && !json_marked_ && trimmed(call_).empty());
}

void OutputParser::start_thought() {
  if (mode_ == Mode::thought) return;  // a model that repeats the marker of the prompt
  if (mode_ == Mode::json) end_call();
  mode_ = Mode::thought;
  thought_begun_ = false;
  line_ends_.clear();
}

void OutputParser::end_thought() {
  if (mode_ != Mode::thought) return warn("the answer closes a thought that was not open");
  line_ends_.clear();
  mode_ = Mode::content;
  drop_line_ends_ = true;
}

void OutputParser::start_call() {
  if (mode_ == Mode::thought) end_thought();
  if (mode_ == Mode::call) {  // a second opening marker: what stood behind the first can be no call
    warn("a call opens inside another");
    emit_calls(std::exchange(call_, {}));
  }
  call_.clear();
  json_marked_ = format_.calls == OutputFormat::Calls::bare_json;
  mode_ = json_marked_ ? Mode::json : Mode::call;
}

void OutputParser::end_call() {
  mode_ = Mode::content;
  emit_calls(std::exchange(call_, {}));
}

void OutputParser::warn(std::string text) {
  if (warnings_.size() < kMaxWarnings) warnings_.push_back(std::move(text));
}

void OutputParser::emit(OutputPiece::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (kind == OutputPiece::Kind::content) {
    content_begun_ = true;
    content_said_ = content_said_ || !trimmed(text).empty();
  }
  if (!out_.empty() && out_.back().kind == kind) out_.back().text += text;
  else out_.push_back({kind, std::string(text), {}});
}

void OutputParser::emit_text(std::string_view text) {
  if (text.empty()) return;
  if (mode_ == Mode::call) {
    call_ += text;
    return;
  }
  if (mode_ == Mode::json) return hold_json(text);
  if (mode_ == Mode::thought) {
    if (!thought_begun_) text.remove_prefix(std::min(text.find_first_not_of(kLineEnds), text.size()));
    if (text.empty()) return;
    thought_begun_ = true;
    const size_t last = text.find_last_not_of(kLineEnds);
    if (last == std::string_view::npos) {
      line_ends_ += text;
      return;
    }
    emit(OutputPiece::Kind::reasoning, std::exchange(line_ends_, {}));
    emit(OutputPiece::Kind::reasoning, text.substr(0, last + 1));
    line_ends_ = text.substr(last + 1);
    return;
  }
  if (drop_line_ends_ && !content_begun_) text.remove_prefix(std::min(text.find_first_not_of(kLineEnds), text.size()));
  if (text.empty()) return;
  const bool may_be_json = format_.calls == OutputFormat::Calls::bare_json && !content_said_ && tools_.is_array() && !tools_.as_array().empty();
  if (may_be_json) {
    json_marked_ = false;
    mode_ = Mode::json;
    return hold_json(text);
  }
  emit(OutputPiece::Kind::content, text);
}

// JSON without a closing marker is held until the end, since only the whole can be told to be a call; without an opening
// one it must begin with a brace.
void OutputParser::hold_json(std::string_view text) {
  call_ += text;
  const std::string_view start = trimmed(call_);
  if (json_marked_ || start.empty() || start.starts_with('{')) return;
  mode_ = Mode::content;
  emit(OutputPiece::Kind::content, std::exchange(call_, {}));
}

// Hands out the calls in `text`; what is none goes to the content as it was written.
void OutputParser::emit_calls(std::string_view text) {
  const auto leave = [&](std::string_view source) { emit(OutputPiece::Kind::content, source); };
  std::vector<Written> written;
  const Status read = read_calls(text, written);
  if (!read.ok()) {
    if (format_.calls != OutputFormat::Calls::bare_json)
      warn("the answer holds a tool call that can't be read (" + read.message() + "); it was left in the text");
    return leave(text);
  }
  std::vector<Result<ParsedCall>> checked;
  for (Written& w : written) {
    checked.push_back(check_call(tools_, w.name, w.positional, std::move(w.named)));
    if (!checked.back().ok()) warn("a tool call was left in the text: " + checked.back().status().message());
  }
  const auto accepted = [](const Result<ParsedCall>& c) { return c.ok(); };
  if (std::none_of(checked.begin(), checked.end(), accepted)) return leave(text);
  for (size_t i = 0; i < checked.size(); ++i) {
    if (!checked[i].ok()) {
      leave(written[i].source);
      continue;
    }
    out_.push_back({OutputPiece::Kind::call, {}, std::move(checked[i]).value()});
    ++calls_;
    drop_line_ends_ = true;
  }
}

}  // namespace espalier
