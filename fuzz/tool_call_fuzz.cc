// An answer, in two different splits: the same pieces come out, and every accepted call was offered.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/json.h"
#include "text/tool_calls.h"

namespace {

struct Outcome {
  std::string content, reasoning, calls;
};

void take(Outcome& o, const std::vector<espalier::OutputPiece>& pieces) {
  for (const auto& p : pieces) {
    if (p.kind == espalier::OutputPiece::Kind::content) o.content += p.text;
    if (p.kind == espalier::OutputPiece::Kind::reasoning) o.reasoning += p.text;
    if (p.kind != espalier::OutputPiece::Kind::call) continue;
    if (p.call.name != "f" && p.call.name != "g") std::abort();
    o.calls += p.call.name + p.call.arguments_json() + "\n";
  }
}

Outcome parse(const espalier::OutputFormat& format, const espalier::Value& tools, const std::string& text, size_t step) {
  espalier::OutputParser parser(format, tools);
  Outcome o;
  for (size_t i = 0; i < text.size();) {
    // Byte 1 stands for the opening token, 2 for the closing one, 3 and 4 for those of thoughts.
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 1 && c <= 4) {
      const std::string* markers[] = {&format.call_start, &format.call_end, &format.thought_start, &format.thought_end};
      take(o, parser.push(*markers[c - 1], true));
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && end - i < step && !(text[end] >= 1 && text[end] <= 4)) ++end;
    take(o, parser.push(std::string_view(text).substr(i, end - i)));
    i = end;
  }
  take(o, parser.finish());
  return o;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const espalier::Value tools =
      espalier::parse_json(R"([{"name":"f","parameters":{"properties":{"a":{},"b":{}}}},{"type":"function","function":{"name":"g"}}])").value();
  espalier::OutputFormat format;
  format.calls = (data[0] & 1) != 0 ? espalier::OutputFormat::Calls::enclosed : espalier::OutputFormat::Calls::bare_json;
  format.call_start = "<c>";
  format.call_end = "</c>";
  format.reasoning = (data[0] & 2) != 0;
  format.starts_in_thought = (data[0] & 4) != 0;
  format.call_markers_are_tokens = (data[0] & 8) != 0;
  format.thought_markers_are_tokens = (data[0] & 16) != 0;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Outcome whole = parse(format, tools, text, text.size() + 1), split = parse(format, tools, text, data[1] % 16 + 1);
  if (whole.content != split.content || whole.reasoning != split.reasoning || whole.calls != split.calls) std::abort();
  return 0;
}
