// A model's answer, sorted while it streams: reasoning, content, tool calls.
//
// Goals: any split of the same answer gives the same result; a marker is what the tokenizer says is one, never text that
// spells it; nothing that was handed out is taken back; nothing is lost; a call reaches the caller only if its tool was
// offered and knows its arguments.
// Rules
//   Reasoning is what stands between the thought markers. An opening call marker ends it too. Line ends at its edges, and
//   line ends before the content that follows reasoning or calls, belong to the frame and are dropped.
//   Between the call markers stand Python calls (python_literal.h), or JSON objects with "name" and "arguments" (or
//   "parameters"). Positional arguments take the tool's properties in their order.
//   A call that was not offered, has an unknown argument, or can't be read, is left in the content as it was written,
//   without its markers, with a warning. The same for an answer that ends before a call is complete.
//   Markers themselves never reach the content.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "espalier/status.h"
#include "text/template.h"

namespace espalier {

struct ParsedCall {
  std::string name;
  Value arguments;  // an object, in the order written
  std::string arguments_json() const;
};

// What an answer is made of.
struct OutputFormat {
  enum class Calls {
    none,
    enclosed,   // between call_start and call_end
    bare_json,  // the whole content is JSON (Llama 3), perhaps behind call_start
  };
  Calls calls = Calls::none;
  std::string call_start, call_end;
  bool reasoning = false;          // thoughts are split off
  bool starts_in_thought = false;  // the prompt opened one
  std::string thought_start = "<think>", thought_end = "</think>";
  // Whether the markers are tokens of their own; else they are looked for in the text.
  bool call_markers_are_tokens = true, thought_markers_are_tokens = true;
};

// From what the template says and which markers are tokens; a model's name plays no part. `is_token`: whether the tokenizer
// has an added token with exactly that text.
OutputFormat find_output_format(const ChatTemplate& chat_template, const std::function<bool(std::string_view)>& is_token,
                                bool starts_in_thought);

struct OutputPiece {
  enum class Kind { content, reasoning, call };
  Kind kind = Kind::content;
  std::string text;
  ParsedCall call;
};

// One answer. Not thread-safe.
class OutputParser {
 public:
  // `tools`: the request's tools (OpenAI's array), or null.
  OutputParser(OutputFormat format, Value tools);

  // More text (whole UTF-8 characters). `is_control`: it is exactly one added token, so it may be a marker; an added token
  // that is no marker counts as text.
  std::vector<OutputPiece> push(std::string_view text, bool is_control = false);
  // The end of the answer: what was held back.
  std::vector<OutputPiece> finish();

  int calls() const { return calls_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  enum class Mode { thought, content, call, json };

  bool take_marker(std::string_view text);
  void scan();
  bool thought_may_open() const;
  void start_thought();
  void end_thought();
  void start_call();
  void end_call();
  void emit(OutputPiece::Kind kind, std::string_view text);
  void emit_text(std::string_view text);
  void hold_json(std::string_view text);
  void emit_calls(std::string_view text);
  void warn(std::string text);

  const OutputFormat format_;
  const Value tools_;
  Mode mode_;
  std::string held_;           // text that may be the beginning of a marker
  std::string call_;           // what stands behind call_start
  std::string line_ends_;      // of reasoning: dropped if the thought ends there
  bool thought_begun_ = false, drop_line_ends_ = false, content_begun_ = false, content_said_ = false, json_marked_ = false;
  int calls_ = 0;
  std::vector<OutputPiece> out_;
  std::vector<std::string> warnings_;
};

// Checks a written call against the tools and names its arguments. Fails with the reason.
Result<ParsedCall> check_call(const Value& tools, const std::string& name, const std::vector<Value>& positional, Value::Object named);

}  // namespace espalier
