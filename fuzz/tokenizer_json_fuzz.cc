// tokenizer.json and a text, both from the input: "JSON <0xff> text". Whatever loads must encode without a crash, give
// only ids that it knows, and agree with itself about markings and decoding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "text/tokenizer.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const espalier::Tokenizer& tokenizer, std::string_view text) {
  using namespace espalier;
  const Result<std::vector<int32_t>> plain = tokenizer.encode(text), special = tokenizer.encode(text, {.special = true, .add_bos = true});
  if (!plain.ok()) return;
  for (const int32_t id : *plain) require(id >= 0 && id < tokenizer.vocab_size() && !tokenizer.is_special(id));
  if (special.ok())
    for (const int32_t id : *special) require(id >= 0 && id < tokenizer.vocab_size());
  tokenizer.decode(*plain, true);
  MarkedText marked(text.substr(0, text.size() / 2), Origin::control);
  marked.append(text.substr(text.size() / 2), Origin::data);
  if (const Result<std::vector<int32_t>> mixed = tokenizer.encode(marked); mixed.ok()) tokenizer.decode(*mixed, false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\xff');
  const std::string_view json_text = input.substr(0, cut), text = cut == std::string_view::npos ? std::string_view() : input.substr(cut + 1);
  const espalier::Result<espalier::Value> json = espalier::parse_json(json_text);
  if (!json.ok()) return 0;
  if (const auto tokenizer = espalier::Tokenizer::from_json(*json, espalier::Value()); tokenizer.ok()) check(*tokenizer, text);
  if (const auto tokenizer = espalier::Tokenizer::from_gguf(*json); tokenizer.ok()) check(*tokenizer, text);
  return 0;
}
