#include "weights/config_reader.h"

#include <cmath>
#include <cstdio>
#include <utility>

namespace espalier {
namespace {

constexpr size_t kShownMax = 60;

std::string number_text(double d) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", d);
  return buffer;
}

// A value as a message shows it: "the string \"x\"", "3", "an array".
std::string shown(const Value& v) {
  if (v.is_bool()) return v.as_bool() ? "true" : "false";
  if (v.is_int()) return std::to_string(v.as_int());
  if (v.is_double()) return number_text(v.as_double());
  if (v.is_string()) {
    const std::string& s = v.as_string();
    return "the string \"" + (s.size() <= kShownMax ? s : s.substr(0, kShownMax) + "...") + "\"";
  }
  if (v.is_null()) return "null";
  return v.is_array() ? "an array of " + std::to_string(v.as_array().size()) : "an object";
}

bool matches(std::string_view pattern, std::string_view key) {
  const bool head = pattern.starts_with('*'), tail = pattern.size() > 1 && pattern.ends_with('*');
  if (head) pattern.remove_prefix(1);
  if (tail) pattern.remove_suffix(1);
  if (head && tail) return key.find(pattern) != std::string_view::npos;
  if (head) return key.ends_with(pattern);
  return tail ? key.starts_with(pattern) : key == pattern;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  return a == b;
}

// An integer, also where a tool wrote 64.0.
std::optional<int64_t> as_integer(const Value& v) {
  if (v.is_int()) return v.as_int();
  if (!v.is_double()) return {};
  const double d = v.as_double();
  if (!(std::fabs(d) < 0x1p53) || d != std::floor(d)) return {};
  return static_cast<int64_t>(d);
}

std::string integer_range(int64_t min, int64_t max) {
  return "an integer from " + std::to_string(min) + " to " + std::to_string(max);
}

const Value& empty_object() {
  static const Value empty = Value::object();
  return empty;
}

}  // namespace

std::string kind_of(const Value& value) {
  if (value.is_null()) return "null";
  const bool vowel = value.is_array() || value.is_object() || value.is_int();
  return (vowel ? "an " : "a ") + std::string(value.type_name());
}

ConfigReader::ConfigReader(const Value& object, std::string where, std::string prefix)
    : object_(object.is_object() ? &object : &empty_object()), where_(std::move(where)), prefix_(std::move(prefix)) {}

Status ConfigReader::error(std::string_view key, const std::string& sentence) const {
  return corrupt(where_ + ": " + full(key) + ": " + sentence, full(key));
}

bool ConfigReader::has(std::string_view key) const {
  const Value* v = object_->find(full(key));
  return v != nullptr && !v->is_null();
}

const Value* ConfigReader::look(std::string_view key) {
  std::string name = full(key);
  const Value* v = object_->find(name);
  read_.insert(std::move(name));
  return v == nullptr || v->is_null() ? nullptr : v;
}

const Value* ConfigReader::raw(std::string_view key) { return look(key); }

namespace {
// The value of a required getter from that of its optional twin.
template <typename T>
Result<T> demand(Result<std::optional<T>> found, Status absent) {
  if (!found.ok()) return std::move(found).status();
  if (!found->has_value()) return absent;
  return std::move(**found);
}
}  // namespace

Result<std::optional<int64_t>> ConfigReader::optional_int(std::string_view key, int64_t min, int64_t max) {
  const Value* v = look(key);
  if (v == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> i = as_integer(*v);
  if (!i || *i < min || *i > max) return error(key, "expected " + integer_range(min, max) + ", found " + shown(*v));
  return i;
}

Result<int64_t> ConfigReader::required_int(std::string_view key, int64_t min, int64_t max) {
  return demand(optional_int(key, min, max), error(key, "expected " + integer_range(min, max) + ", and it is missing"));
}

Result<std::optional<double>> ConfigReader::optional_number(std::string_view key, double min, double max) {
  const Value* v = look(key);
  if (v == nullptr) return std::optional<double>();
  if (!v->is_number() || !(v->as_double() >= min && v->as_double() <= max)) {
    return error(key, "expected a number from " + number_text(min) + " to " + number_text(max) + ", found " + shown(*v));
  }
  return std::optional<double>(v->as_double());
}

Result<double> ConfigReader::required_number(std::string_view key, double min, double max) {
  return demand(optional_number(key, min, max),
                error(key, "expected a number from " + number_text(min) + " to " + number_text(max) + ", and it is missing"));
}

Result<std::optional<bool>> ConfigReader::optional_bool(std::string_view key) {
  const Value* v = look(key);
  if (v == nullptr) return std::optional<bool>();
  if (!v->is_bool()) return error(key, "expected true or false, found " + shown(*v));
  return std::optional<bool>(v->as_bool());
}

Result<bool> ConfigReader::required_bool(std::string_view key) {
  return demand(optional_bool(key), error(key, "expected true or false, and it is missing"));
}

Result<std::optional<std::string>> ConfigReader::optional_string(std::string_view key) {
  const Value* v = look(key);
  if (v == nullptr) return std::optional<std::string>();
  if (!v->is_string()) return error(key, "expected a string, found " + shown(*v));
  return std::optional<std::string>(v->as_string());
}

Result<std::string> ConfigReader::required_string(std::string_view key) {
  return demand(optional_string(key), error(key, "expected a string, and it is missing"));
}

Result<std::optional<std::vector<int64_t>>> ConfigReader::optional_ints(std::string_view key, size_t size, int64_t min,
                                                                        int64_t max, bool broadcast) {
  using List = std::optional<std::vector<int64_t>>;
  const Value* v = look(key);
  if (v == nullptr) return List();
  const std::string expected = "expected " + (size == 0 ? "a list" : "a list of " + std::to_string(size)) +
                               (broadcast ? " (or one)" : "") + " of integers from " + std::to_string(min) + " to " +
                               std::to_string(max);
  const auto take = [&](const Value& element) {
    std::optional<int64_t> i = as_integer(element);
    return i && *i >= min && *i <= max ? i : std::nullopt;
  };
  if (broadcast && v->is_number()) {
    const std::optional<int64_t> one = take(*v);
    if (!one) return error(key, expected + ", found " + shown(*v));
    return List(std::vector<int64_t>(size, *one));
  }
  if (!v->is_array() || (size != 0 && v->as_array().size() != size)) return error(key, expected + ", found " + shown(*v));
  std::vector<int64_t> list;
  for (const Value& element : v->as_array()) {
    const std::optional<int64_t> i = take(element);
    if (!i) return error(key, expected + ", found " + shown(element) + " at index " + std::to_string(list.size()));
    list.push_back(*i);
  }
  return List(std::move(list));
}

Result<std::vector<int64_t>> ConfigReader::required_ints(std::string_view key, size_t size, int64_t min, int64_t max,
                                                         bool broadcast) {
  return demand(optional_ints(key, size, min, max, broadcast), error(key, "expected a list of integers, and it is missing"));
}

Result<std::optional<std::vector<std::string>>> ConfigReader::optional_strings(std::string_view key, size_t size) {
  using List = std::optional<std::vector<std::string>>;
  const Value* v = look(key);
  if (v == nullptr) return List();
  const std::string expected = "expected a list of " + (size == 0 ? "" : std::to_string(size) + " ") + "strings";
  if (!v->is_array() || (size != 0 && v->as_array().size() != size)) return error(key, expected + ", found " + shown(*v));
  std::vector<std::string> list;
  for (const Value& element : v->as_array()) {
    if (!element.is_string())
      return error(key, expected + ", found " + shown(element) + " at index " + std::to_string(list.size()));
    list.push_back(element.as_string());
  }
  return List(std::move(list));
}

Result<std::optional<ConfigReader>> ConfigReader::optional_object(std::string_view key) {
  const Value* v = look(key);
  if (v == nullptr) return std::optional<ConfigReader>();
  if (!v->is_object()) return error(key, "expected an object, found " + shown(*v));
  return std::optional<ConfigReader>(ConfigReader(*v, where_ + ": " + full(key)));
}

std::string_view ConfigReader::first_of(std::initializer_list<std::string_view> keys) {
  std::string_view first;
  for (std::string_view key : keys) {
    if (look(key) != nullptr && first.empty()) first = key;
  }
  return first.empty() ? *keys.begin() : first;
}

Status ConfigReader::refuse_if_present(std::span<const RefusedKey> table) {
  for (const Value::Member& member : object_->as_object()) {
    if (!member.first.starts_with(prefix_)) continue;
    const std::string_view key = std::string_view(member.first).substr(prefix_.size());
    for (const RefusedKey& entry : table) {
      if (!matches(entry.key, key)) continue;
      if (!member.second.is_null() && (entry.harmless.is_null() || !equal(member.second, entry.harmless))) {
        return unsupported(where_ + ": " + member.first + " is " + shown(member.second) + ": " + entry.why, member.first);
      }
      read_.insert(member.first);
    }
  }
  return {};
}

void ConfigReader::ignore(std::span<const char* const> keys) {
  for (const Value::Member& member : object_->as_object()) {
    if (!member.first.starts_with(prefix_)) continue;
    for (const char* pattern : keys)
      if (matches(pattern, std::string_view(member.first).substr(prefix_.size()))) read_.insert(member.first);
  }
}

std::vector<std::string> ConfigReader::unread() const {
  std::vector<std::string> names;
  for (const Value::Member& member : object_->as_object())
    if (member.first.starts_with(prefix_) && !member.second.is_null() && !read_.contains(member.first))
      names.push_back(member.first);
  return names;
}

}  // namespace espalier
