// Typed access to a config object (config.json, GGUF metadata) that remembers which keys were read.
//
// Every error names file and key: "config.json: hidden_size: expected an integer from 1 to 1048576, found the string ...".
// A JSON null counts as absent. Reading a key marks it; what is left is either refused by a table (keys that would
// change the maths), ignored by a table, or listed once by the caller. Borrows the Value. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "espalier/status.h"

namespace espalier {

// A key that would change the maths if it did something. `key` may begin or end with '*' or both. The key is let pass
// when it is absent, null, or equal to `harmless` (numbers compare as numbers; a null `harmless`: only absent or null).
struct RefusedKey {
  const char* key;
  Value harmless;
  const char* why;  // "sliding-window attention is not implemented"
};

// "an array", "a string", "null": what a message found.
std::string kind_of(const Value& value);

class ConfigReader {
 public:
  // `prefix` is put before each key: ConfigReader(metadata, "m.gguf", "arch.") reads arch.block_count as "block_count",
  // and unread() then lists only keys that begin with it. A value that is not an object reads as an empty one.
  ConfigReader(const Value& object, std::string where, std::string prefix = {});

  bool has(std::string_view key) const;  // present and not null; does not mark
  const Value* raw(std::string_view key);  // marks; nullptr when absent or null

  Result<int64_t> required_int(std::string_view key, int64_t min, int64_t max);
  Result<std::optional<int64_t>> optional_int(std::string_view key, int64_t min, int64_t max);
  // Integers count as numbers. Never NaN or infinite.
  Result<double> required_number(std::string_view key, double min, double max);
  Result<std::optional<double>> optional_number(std::string_view key, double min, double max);
  Result<bool> required_bool(std::string_view key);
  Result<std::optional<bool>> optional_bool(std::string_view key);
  Result<std::string> required_string(std::string_view key);
  Result<std::optional<std::string>> optional_string(std::string_view key);
  // Exactly `size` elements where size > 0. With broadcast, one integer stands for a list of `size` equal ones.
  Result<std::vector<int64_t>> required_ints(std::string_view key, size_t size, int64_t min, int64_t max,
                                             bool broadcast = false);
  Result<std::optional<std::vector<int64_t>>> optional_ints(std::string_view key, size_t size, int64_t min, int64_t max,
                                                            bool broadcast = false);
  Result<std::optional<std::vector<std::string>>> optional_strings(std::string_view key, size_t size);
  // A reader over a nested object (its own marks, "config.json: rope_parameters"); an empty optional when absent.
  Result<std::optional<ConfigReader>> optional_object(std::string_view key);

  // The first of several spellings that is present, marking all of them; the first spelling when none is.
  std::string_view first_of(std::initializer_list<std::string_view> keys);

  // Refuses with file, key, value and reason; marks the keys of the table that it let pass.
  Status refuse_if_present(std::span<const RefusedKey> table);
  // Marks keys as known to be without effect ('*' at either end as above).
  void ignore(std::span<const char* const> keys);
  // Present, not null, never read, refused or ignored; in the file's order.
  std::vector<std::string> unread() const;

  const std::string& where() const { return where_; }
  // A failure about a key, in the reader's own form.
  Status error(std::string_view key, const std::string& sentence) const;

 private:
  const Value* look(std::string_view key);
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  const Value* object_;
  std::string where_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace espalier
