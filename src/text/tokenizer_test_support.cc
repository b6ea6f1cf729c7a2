#include "text/tokenizer_test_support.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "base/json.h"
#include "text/unicode.h"
#include "weights/gguf.h"

namespace espalier::testing {
namespace {

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t next(uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % bound;
  }
  template <typename T>
  const T& pick(const std::vector<T>& items) {
    return items[next(items.size())];
  }

 private:
  uint64_t state_;
};

void append_between(SplitMix& rng, uint32_t low, uint32_t high, std::string& out) {
  const auto code = static_cast<uint32_t>(low + rng.next(high - low + 1));
  if (code >= 0xd800 && code < 0xe000)
    out += 'x';
  else
    append_utf8(code, out);
}

std::vector<uint32_t> codes_of(const Value& array) {
  std::vector<uint32_t> out;
  for (const Value& v : array.as_array()) out.push_back(static_cast<uint32_t>(v.as_int()));
  return out;
}

std::vector<std::string> texts_of(const Value& array) {
  std::vector<std::string> out;
  for (const Value& v : array.as_array()) out.push_back(v.as_string());
  return out;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

Value read_json(const std::filesystem::path& path) {
  Result<Value> value = parse_json(read_file(path));
  EXPECT_TRUE(value.ok()) << path;
  return value.ok() ? *value : Value();
}

std::filesystem::path fixture(const std::string& name) { return std::filesystem::path(ESPALIER_SOURCE_DIR) / "tests/fixtures/tokenizer" / name; }

std::filesystem::path data_folder() {
  if (const char* folder = std::getenv("ESPALIER_TEST_DATA"); folder != nullptr && *folder != 0) return folder;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "/" : home) / ".cache/espalier/test-data";
}

namespace {

std::optional<Tokenizer> load(const std::string& name, std::string* why) {
  const auto loaded = [&](Result<Tokenizer> tokenizer) -> std::optional<Tokenizer> {
    EXPECT_TRUE(tokenizer.ok()) << name << ": " << (tokenizer.ok() ? "" : tokenizer.status().message());
    if (!tokenizer.ok()) return std::nullopt;
    return *tokenizer;
  };
  if (name == "smollm2") {
    const auto path = data_folder() / "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    *why = path.string() + " is not there; tools/get-smollm2 fetches it";
    if (!std::filesystem::exists(path)) return std::nullopt;
    const std::string bytes = read_file(path);
    const Result<Gguf> gguf = parse_gguf(std::as_bytes(std::span(bytes)));
    EXPECT_TRUE(gguf.ok()) << (gguf.ok() ? "" : gguf.status().message());
    if (!gguf.ok()) return std::nullopt;
    return loaded(Tokenizer::from_gguf(gguf->metadata));
  }
  const auto folder = name == "demo" ? fixture("demo") : data_folder() / "tokenizers" / name;
  *why = (folder / "tokenizer.json").string() + " is not there; tools/get-tokenizers fetches it";
  if (!std::filesystem::exists(folder / "tokenizer.json")) return std::nullopt;
  return loaded(Tokenizer::from_json(read_json(folder / "tokenizer.json"), read_json(folder / "tokenizer_config.json")));
}

}  // namespace

std::optional<Tokenizer> load_vocabulary(const std::string& name, std::string* why) {
  static std::map<std::string, Tokenizer> loaded;
  if (const auto it = loaded.find(name); it != loaded.end()) return it->second;
  std::optional<Tokenizer> fresh = load(name, why);
  if (fresh) loaded.emplace(name, *fresh);
  return fresh;
}

std::vector<int32_t> ids_of(const Value& array) {
  std::vector<int32_t> out;
  for (const Value& v : array.as_array()) out.push_back(static_cast<int32_t>(v.as_int()));
  return out;
}

RandomStrings::RandomStrings() {
  const Value pool = read_json(fixture("fragments.json"));
  fragments_ = texts_of(*pool.find("fragments"));
  tokens_ = texts_of(*pool.find("tokens"));
  marks_ = codes_of(*pool.find("marks"));
  spaces_ = codes_of(*pool.find("spaces"));
  for (const Value& block : pool.find("blocks")->as_array()) {
    const std::vector<uint32_t> ends = codes_of(block);
    blocks_.emplace_back(ends[0], ends[1]);
  }
}

std::string RandomStrings::make(uint64_t seed) const {
  SplitMix rng(seed);
  std::string out;
  for (uint64_t parts = 1 + rng.next(24); parts > 0; --parts) {
    const uint64_t kind = rng.next(100);
    if (kind < 40) {
      out += rng.pick(fragments_);
    } else if (kind < 52) {
      for (uint64_t n = 1 + rng.next(9); n > 0; --n) append_between(rng, 'a', 'z', out);
    } else if (kind < 58) {
      append_between(rng, 0, kLastCodePoint, out);
    } else if (kind < 70) {
      const auto block = rng.pick(blocks_);
      for (uint64_t n = 1 + rng.next(6); n > 0; --n) append_between(rng, block.first, block.second, out);
    } else if (kind < 78) {
      for (uint64_t n = 1 + rng.next(6); n > 0; --n) append_utf8(rng.pick(spaces_), out);
    } else if (kind < 84) {
      for (uint64_t n = 1 + rng.next(8); n > 0; --n) append_between(rng, '0', '9', out);
    } else if (kind < 92) {
      const auto block = rng.pick(blocks_);
      append_between(rng, block.first, block.second, out);
      for (uint64_t n = 1 + rng.next(4); n > 0; --n) append_utf8(rng.pick(marks_), out);
    } else {
      out += rng.pick(tokens_);
    }
  }
  return out;
}

}  // namespace espalier::testing
