// A JSON-shaped value: config files, GGUF metadata, requests and results all travel as this type.
//
// Plain data, no library behind it (base/json.h reads and writes text). Objects keep the order of insertion, as chat
// templates need. Copying is deep. Not thread-safe for writing. Nesting of values read from files is bounded by the
// readers (kMaxValueDepth), so recursion over a Value is safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace espalier {

inline constexpr int kMaxValueDepth = 256;

class Value {
 public:
  using Array = std::vector<Value>;
  using Member = std::pair<std::string, Value>;
  using Object = std::vector<Member>;  // keys are unique; the last one given wins, in the place of the first

  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool b) : v_(b) {}
  Value(int i) : v_(int64_t{i}) {}
  Value(int64_t i) : v_(i) {}
  Value(uint32_t i) : v_(int64_t{i}) {}
  Value(uint64_t i);  // becomes a double above 2^63 - 1
  Value(double d) : v_(d) {}
  Value(const char* s) : v_(std::string(s)) {}
  Value(std::string s) : v_(std::move(s)) {}
  Value(std::string_view s) : v_(std::string(s)) {}
  Value(Array a) : v_(std::move(a)) {}
  Value(Object o) : v_(std::move(o)) {}
  static Value array() { return Value(Array{}); }
  static Value object() { return Value(Object{}); }

  bool is_null() const { return v_.index() == 0; }
  bool is_bool() const { return v_.index() == 1; }
  bool is_int() const { return v_.index() == 2; }
  bool is_double() const { return v_.index() == 3; }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return v_.index() == 4; }
  bool is_array() const { return v_.index() == 5; }
  bool is_object() const { return v_.index() == 6; }
  const char* type_name() const;  // "null", "boolean", "integer", "number", "string", "array", "object"

  // Require the type that the name says.
  bool as_bool() const { return std::get<bool>(v_); }
  int64_t as_int() const { return std::get<int64_t>(v_); }
  double as_double() const { return is_int() ? static_cast<double>(as_int()) : std::get<double>(v_); }
  const std::string& as_string() const { return std::get<std::string>(v_); }
  const Array& as_array() const { return std::get<Array>(v_); }
  Array& as_array() { return std::get<Array>(v_); }
  const Object& as_object() const { return std::get<Object>(v_); }
  Object& as_object() { return std::get<Object>(v_); }

  // The member of that name, or nullptr: not an object, or no such key. O(members).
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  // A dotted path through objects: at_path("rope_parameters.rope_theta").
  const Value* find_path(std::string_view path) const;
  // Sets a member (a null value becomes an object first). Requires: null or object.
  Value& set(std::string_view key, Value value);
  // Appends (a null value becomes an array first). Requires: null or array.
  Value& push(Value value);

  bool operator==(const Value&) const = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> v_;
};

}  // namespace espalier
