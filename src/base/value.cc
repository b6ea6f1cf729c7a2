#include "base/value.h"

#include <limits>

#include "base/check.h"

namespace espalier {

Value::Value(uint64_t i) {
  if (i <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    v_ = static_cast<int64_t>(i);
  else
    v_ = static_cast<double>(i);
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return kNames[v_.index()];
}

const Value* Value::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& m : as_object())
    if (m.first == key) return &m.second;
  return nullptr;
}

Value* Value::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

const Value* Value::find_path(std::string_view path) const {
  const Value* v = this;
  while (v != nullptr && !path.empty()) {
    const size_t dot = path.find('.');
    v = v->find(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view{} : path.substr(dot + 1);
  }
  return v;
}

Value& Value::set(std::string_view key, Value value) {
  if (is_null()) v_ = Object{};
  ESP_CHECK(is_object());
  if (Value* found = find(key)) {
    *found = std::move(value);
    return *found;
  }
  as_object().emplace_back(std::string(key), std::move(value));
  return as_object().back().second;
}

Value& Value::push(Value value) {
  if (is_null()) v_ = Array{};
  ESP_CHECK(is_array());
  as_array().push_back(std::move(value));
  return as_array().back();
}

}  // namespace espalier
