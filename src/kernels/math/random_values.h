// Seeded numbers for tests, benches and the self-check: integers and exact scalings only, so the same on every platform.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier {

class RandomValues {
 public:
  explicit RandomValues(uint64_t seed) : state_(seed) {}
  uint64_t next() {  // SplitMix64
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
  // Uniform in [-scale, scale).
  float uniform(float scale) { return static_cast<float>(static_cast<int64_t>(next() >> 40) - (int64_t{1} << 23)) * 0x1p-23f * scale; }
  std::vector<float> uniform(size_t n, float scale) {
    std::vector<float> values(n);
    for (float& v : values) v = uniform(scale);
    return values;
  }

 private:
  uint64_t state_;
};

// FNV-1a over the bits of floats; a NaN counts as one value.
class BitHash {
 public:
  void add(float x) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &x, 4);
    if (x != x) bits = 0x7fc00000u;
    for (int i = 0; i < 4; ++i) hash_ = (hash_ ^ (bits >> (8 * i) & 0xffu)) * 0x100000001b3u;
  }
  void add(const std::vector<float>& values) {
    for (float v : values) add(v);
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace espalier
