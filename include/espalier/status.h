// What a call that can fail returns: a small code, one full sentence, and the field or file it speaks of.
//
// Status is a value; it owns its text and may cross threads. Result<T> is a T or a Status that is not ok.
// Nothing in the library prints or exits: front ends decide what to do with the sentence.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace espalier {

enum class Code {
  ok,
  invalid_argument,  // a request or an option is wrong
  corrupt,           // a file is not what it says it is
  unsupported,       // well formed, and not something that this build can do
  not_found,
  io,
  out_of_memory,  // would not fit: the sentence names both numbers
  cancelled,
  internal,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::string field = {})
      : code_(code), message_(std::move(message)), field_(std::move(field)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // The option, JSON field or tensor at fault; empty where there is none.
  const std::string& field() const { return field_; }

  // The same failure seen from one layer further up: "where: message".
  Status with_context(const std::string& where) && {
    if (!ok()) message_ = where + ": " + message_;
    return std::move(*this);
  }

 private:
  Code code_ = Code::ok;
  std::string message_;
  std::string field_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  // Requires: !status.ok().
  Result(Status status) : held_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const { return held_.index() == 0; }
  // Requires: !ok().
  const Status& status() const& { return std::get<1>(held_); }
  Status&& status() && { return std::get<1>(std::move(held_)); }
  // Requires: ok().
  T& value() & { return std::get<0>(held_); }
  const T& value() const& { return std::get<0>(held_); }
  T&& value() && { return std::get<0>(std::move(held_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> held_;
};

inline Status invalid(std::string message, std::string field = {}) {
  return {Code::invalid_argument, std::move(message), std::move(field)};
}
inline Status corrupt(std::string message, std::string field = {}) {
  return {Code::corrupt, std::move(message), std::move(field)};
}
inline Status unsupported(std::string message, std::string field = {}) {
  return {Code::unsupported, std::move(message), std::move(field)};
}

}  // namespace espalier

// Leaves the function with the status of `expr` if it is not ok.
#define ESPALIER_TRY(expr)                                   \
  do {                                                       \
    if (::espalier::Status try_status_ = (expr); !try_status_.ok()) return try_status_; \
  } while (0)

#define ESPALIER_CONCAT_(a, b) a##b
#define ESPALIER_CONCAT(a, b) ESPALIER_CONCAT_(a, b)
// Declares `decl` from the value of a Result, or leaves the function with its status.
#define ESPALIER_ASSIGN(decl, expr) ESPALIER_ASSIGN_(ESPALIER_CONCAT(try_result_, __LINE__), decl, expr)
#define ESPALIER_ASSIGN_(tmp, decl, expr)              \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return std::move(tmp).status();       \
  decl = std::move(tmp).value()
