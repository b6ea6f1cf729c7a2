// A neutral state as bytes, little endian:
//   "ESPSTATE" | version u32 | program hash u64 | rows u32 | tensors u32 | tokens i32[rows]
//   each tensor: name (u32 length, bytes) | dtype (u32 length, bytes) | count u64 | f32[count]
//   FNV-1a 64 of everything before
#include <bit>
#include <cstring>

#include "units/unit.h"

namespace espalier {
namespace {

constexpr char kMagic[8] = {'E', 'S', 'P', 'S', 'T', 'A', 'T', 'E'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxNameBytes = 256;

uint64_t fnv(std::span<const std::byte> bytes) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (std::byte b : bytes) h = (h ^ static_cast<uint64_t>(b)) * 0x100000001b3ull;
  return h;
}

class Writer {
 public:
  template <typename T>
  void number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
  }
  void text(const std::string& s) {
    number(static_cast<uint32_t>(s.size()));
    for (char c : s) out_.push_back(static_cast<std::byte>(c));
  }
  std::vector<std::byte> out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <typename T>
  bool number(T& value) {
    if (left_.size() < sizeof(T)) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < sizeof(T); ++i) v |= static_cast<uint64_t>(left_[i]) << (8 * i);
    left_ = left_.subspan(sizeof(T));
    value = static_cast<T>(v);
    return true;
  }
  bool text(std::string& s) {
    uint32_t n = 0;
    if (!number(n) || n > kMaxNameBytes || left_.size() < n) return false;
    s.assign(reinterpret_cast<const char*>(left_.data()), n);
    left_ = left_.subspan(n);
    return true;
  }
  size_t left() const { return left_.size(); }

 private:
  std::span<const std::byte> left_;
};

bool read_tensor(Reader& in, NeutralState::Tensor& t) {
  uint64_t count = 0;
  if (!in.text(t.name) || !in.text(t.dtype) || !in.number(count) || count > in.left() / 4) return false;
  t.data.resize(count);
  for (float& f : t.data) {
    uint32_t u = 0;
    if (!in.number(u)) return false;
    f = std::bit_cast<float>(u);
  }
  return true;
}

bool read_body(Reader& in, NeutralState& s) {
  uint32_t rows = 0, tensors = 0;
  if (!in.number(s.program_hash) || !in.number(rows) || !in.number(tensors)) return false;
  if (rows > in.left() / 4 || tensors > in.left()) return false;
  s.tokens.resize(rows);
  for (int32_t& t : s.tokens) {
    uint32_t u = 0;
    if (!in.number(u)) return false;
    t = static_cast<int32_t>(u);
  }
  for (uint32_t i = 0; i < tensors; ++i)
    if (!read_tensor(in, s.tensors.emplace_back())) return false;
  return in.left() == 0;
}

}  // namespace

std::vector<std::byte> serialize(const NeutralState& state) {
  Writer w;
  for (char c : kMagic) w.out_.push_back(static_cast<std::byte>(c));
  w.number(kVersion);
  w.number(state.program_hash);
  w.number(static_cast<uint32_t>(state.tokens.size()));
  w.number(static_cast<uint32_t>(state.tensors.size()));
  for (int32_t t : state.tokens) w.number(static_cast<uint32_t>(t));
  for (const NeutralState::Tensor& t : state.tensors) {
    w.text(t.name);
    w.text(t.dtype);
    w.number(static_cast<uint64_t>(t.data.size()));
    for (float f : t.data) w.number(std::bit_cast<uint32_t>(f));
  }
  w.number(fnv(w.out_));
  return std::move(w.out_);
}

Result<NeutralState> deserialize(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof kMagic + 12 || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return corrupt("not a saved state");
  Reader tail(bytes.last(8));
  uint64_t checksum = 0;
  tail.number(checksum);
  const std::span<const std::byte> body = bytes.first(bytes.size() - 8);
  if (checksum != fnv(body)) return corrupt("the saved state is damaged: its checksum does not match");
  Reader in(body.subspan(sizeof kMagic));
  uint32_t version = 0;
  in.number(version);
  if (version != kVersion)
    return unsupported("the saved state has version " + std::to_string(version) + ", this build reads " + std::to_string(kVersion));
  NeutralState state;
  if (!read_body(in, state)) return corrupt("the saved state ends early or has trailing bytes");
  return state;
}

namespace {

Status check_tensor(const NeutralState& state, size_t index, const std::string& name, size_t floats, bool may_be_empty) {
  if (index >= state.tensors.size() || state.tensors[index].name != name)
    return corrupt("the saved state lacks " + name);
  const size_t found = state.tensors[index].data.size();
  if (found == floats || (may_be_empty && found == 0)) return {};
  return corrupt("the saved state's " + name + ": expected " + std::to_string(floats) + " values, found " + std::to_string(found));
}

}  // namespace

Status check_neutral(const Program& program, const NeutralState& state) {
  if (state.program_hash != program_hash(program)) return invalid("the saved state belongs to another model");
  size_t t = 0;
  for (const StateDecl& s : program.states) {
    if (s.kind == StateDecl::Kind::frames) {
      ESPALIER_TRY(check_tensor(state, t++, s.name, static_cast<size_t>(s.frame_count) * static_cast<size_t>(s.width), false));
      continue;
    }
    const size_t floats = state.tokens.size() * static_cast<size_t>(s.n_kv_heads) * static_cast<size_t>(s.head_dim);
    ESPALIER_TRY(check_tensor(state, t++, s.name + ".k", floats, true));
    ESPALIER_TRY(check_tensor(state, t++, s.name + ".v", floats, true));
    if (state.tensors[t - 1].data.size() != state.tensors[t - 2].data.size()) return corrupt("the saved state's " + s.name + ": k and v differ in length");
  }
  if (t != state.tensors.size()) return corrupt("the saved state has " + std::to_string(state.tensors.size()) + " tensors, expected " + std::to_string(t));
  return {};
}

}  // namespace espalier
