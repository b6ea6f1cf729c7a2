// A template from the first part of the input, content from the rest: whatever they are, rendering ends within its limits,
// the marks are consistent, and no byte of the content turns into control.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/template.h"

namespace {

espalier::Value message(const char* role, const std::string& content) {
  return espalier::Value(espalier::Value::Object{{"role", role}, {"content", content}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string all(reinterpret_cast<const char*>(data), size);
  const size_t cut = all.find('\0');
  const std::string source = all.substr(0, cut);
  const std::string content = cut == std::string::npos ? "hello \xf0\x9f\x98\x8a" : all.substr(cut + 1);
  auto parsed = espalier::ChatTemplate::parse(source);
  if (!parsed.ok()) return 0;
  espalier::ChatInput in;
  in.messages = espalier::Value(espalier::Value::Array{message("system", "s"), message("user", content), message("assistant", "a")});
  in.tools = espalier::Value(espalier::Value::Array{espalier::Value(espalier::Value::Object{{"name", content}, {"n", 1.5}, {"l", espalier::Value::Array{1, true, {}}}})});
  in.kwargs = espalier::Value(espalier::Value::Object{{"x", content}, {"n", 7}, {"l", espalier::Value::Array{3, 1, 2}}, {"d", espalier::Value::Object{{"a", 1}, {"b", content}}}});
  in.bos_token = "<s>";
  in.now = espalier::CivilTime{2025, 1, 2, 3, 4, 5};
  in.limits = {20000, uint64_t{4} << 20};
  const auto text = parsed->render(in);
  if (!text.ok()) return 0;
  size_t end = 0;
  for (const auto& run : text->runs()) {
    if (run.end <= end) std::abort();
    end = run.end;
  }
  if (end != text->size()) std::abort();
  return 0;
}
