// What the tokenizer tests share: fixtures, the folder of large vocabularies, and the random strings.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/value.h"
#include "text/tokenizer.h"

namespace espalier::testing {

std::string read_file(const std::filesystem::path& path);  // fails the test and returns "" if it cannot
Value read_json(const std::filesystem::path& path);
std::filesystem::path fixture(const std::string& name);  // tests/fixtures/tokenizer/NAME
std::filesystem::path data_folder();                     // $ESPALIER_TEST_DATA, or ~/.cache/espalier/test-data

// "demo", "llama3", "qwen3" or "smollm2". Nothing where its file is not on this machine; `why` then says how to get it.
std::optional<Tokenizer> load_vocabulary(const std::string& name, std::string* why);

std::vector<int32_t> ids_of(const Value& array);

// The strings of tools/oracle/tokenizer_random.py, made by the same arithmetic from fragments.json.
class RandomStrings {
 public:
  RandomStrings();
  std::string make(uint64_t seed) const;

 private:
  std::vector<std::string> fragments_, tokens_;
  std::vector<std::pair<uint32_t, uint32_t>> blocks_;
  std::vector<uint32_t> marks_, spaces_;
};

}  // namespace espalier::testing
