// SHA-256 (libcrypto, confined to sha256.cc). For the identity of model files; not on any step path.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace espalier {

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  ~Sha256();
  void add(std::span<const std::byte> bytes);
  // 64 lower-case hex digits. Ends the object: nothing may be added after it.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace espalier
