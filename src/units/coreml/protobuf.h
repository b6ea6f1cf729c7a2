// The wire format of protocol buffers, as far as writing needs it: fields of varints and of length-delimited bytes, in the order given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::coreml {

class Message {
 public:
  Message& number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) * 8);
    return varint(value);
  }
  Message& bytes(int field, std::string_view data) {
    varint(static_cast<uint64_t>(field) * 8 + 2);
    varint(data.size());
    bytes_ += data;
    return *this;
  }
  Message& message(int field, const Message& m) { return bytes(field, m.bytes_); }
  // One entry of a map from strings to messages.
  Message& entry(int field, std::string_view key, const Message& value) { return message(field, Message().bytes(1, key).message(2, value)); }
  // A number without a field: an element of a packed list.
  Message& varint(uint64_t value) {
    for (; value > 127; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  const std::string& data() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace espalier::coreml
