#include "weights/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <unordered_set>

#include "weights/config_reader.h"

namespace espalier {
namespace {

constexpr int kArrayDepthMax = 8;

enum GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kTypes };
constexpr uint64_t kLeastBytes[kTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

std::string count_text(uint64_t n, const char* what) { return std::to_string(n) + " " + what; }

// A cursor over the file. Nothing moves past the end: each read says what it was for.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}
  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }

  template <typename T>
  Status read(T* out, const std::string& what) {
    if (left() < sizeof(T)) return short_of(sizeof(T), what);
    std::memcpy(out, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return {};
  }

  Status read_string(std::string* out, const std::string& what) {
    uint64_t length = 0;
    ESPALIER_TRY(read(&length, what));
    if (length > left()) return short_of(length, what);
    if (length > kGgufStringMax) {
      return corrupt(what + ": a string of " + count_text(length, "bytes") + ", and at most " +
                     count_text(kGgufStringMax, "are allowed"));
    }
    out->assign(reinterpret_cast<const char*>(file_.data()) + at_, static_cast<size_t>(length));
    at_ += length;
    return {};
  }

  // A name stands in sentences, so it must be fit to be read.
  Status read_name(std::string* out, const std::string& what) {
    ESPALIER_TRY(read_string(out, what));
    if (out->size() > kGgufNameMax) return corrupt(what + ": a name of " + count_text(out->size(), "bytes") + ", and at most " + count_text(kGgufNameMax, "are allowed"));
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    if (std::any_of(out->begin(), out->end(), is_control)) return corrupt(what + ": expected a name, found control characters");
    return {};
  }

 private:
  Status short_of(uint64_t wanted, const std::string& what) const {
    return corrupt(what + ": expected " + count_text(wanted, "bytes") + " at byte " + std::to_string(at_) + ", found only " +
                   count_text(left(), "left in the file"));
  }

  std::span<const std::byte> file_;
  uint64_t at_ = 0;
};

class Parser {
 public:
  explicit Parser(std::span<const std::byte> file) : file_(file), in_(file) {}
  Result<Gguf> run();

 private:
  Status read_preamble();
  Status read_metadata();
  Status read_value(uint32_t type, int depth, const std::string& what, Value* out);
  Status read_array(int depth, const std::string& what, Value* out);
  template <typename T>
  Status read_number(const std::string& what, Value* out);
  Status read_alignment();
  Status read_infos();
  Status read_info(TensorView* tensor, uint64_t* offset);
  Status place_tensors();

  std::span<const std::byte> file_;
  Cursor in_;
  Gguf out_;
  uint64_t tensors_ = 0, keys_ = 0;
  uint64_t elements_left_ = kGgufElementsMax;
  uint64_t alignment_ = 32;
  std::vector<uint64_t> offsets_;
};

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

Status Parser::read_preamble() {
  char magic[4] = {};
  uint32_t version = 0;
  ESPALIER_TRY(in_.read(&magic, "GGUF magic"));
  if (std::memcmp(magic, "GGUF", 4) != 0) {
    if (std::memcmp(magic, "lmgg", 4) == 0 || std::memcmp(magic, "tjgg", 4) == 0 || std::memcmp(magic, "fmgg", 4) == 0)
      return unsupported("a GGML file from before GGUF; convert it to GGUF version 3");
    return corrupt("expected a GGUF file, found other first bytes");
  }
  ESPALIER_TRY(in_.read(&version, "GGUF version"));
  if (version == 1 || version == 2) {
    return unsupported("GGUF version " + std::to_string(version) + " is not read; convert it to version 3");
  }
  if (version != 3 && (version & 0xffffu) == 0)
    return unsupported("a big-endian GGUF file is not read; convert it to little-endian");
  if (version != 3) return unsupported("GGUF version " + std::to_string(version) + " is not read; version 3 is");
  ESPALIER_TRY(in_.read(&tensors_, "GGUF tensor count"));
  ESPALIER_TRY(in_.read(&keys_, "GGUF metadata count"));
  if (tensors_ > kGgufTensorsMax)
    return corrupt("the file claims " + count_text(tensors_, "tensors") + ", and at most " + count_text(kGgufTensorsMax, "are allowed"));
  if (keys_ > kGgufKeysMax)
    return corrupt("the file claims " + count_text(keys_, "metadata keys") + ", and at most " + count_text(kGgufKeysMax, "are allowed"));
  return {};
}

template <typename T>
Status Parser::read_number(const std::string& what, Value* out) {
  T number = 0;
  ESPALIER_TRY(in_.read(&number, what));
  if constexpr (std::is_floating_point_v<T>)
    *out = Value(static_cast<double>(number));
  else if constexpr (std::is_unsigned_v<T>)
    *out = Value(uint64_t{number});
  else
    *out = Value(int64_t{number});
  return {};
}

Status Parser::read_value(uint32_t type, int depth, const std::string& what, Value* out) {
  switch (type) {
    case kU8: return read_number<uint8_t>(what, out);
    case kI8: return read_number<int8_t>(what, out);
    case kU16: return read_number<uint16_t>(what, out);
    case kI16: return read_number<int16_t>(what, out);
    case kU32: return read_number<uint32_t>(what, out);
    case kI32: return read_number<int32_t>(what, out);
    case kU64: return read_number<uint64_t>(what, out);
    case kI64: return read_number<int64_t>(what, out);
    case kF32: return read_number<float>(what, out);
    case kF64: return read_number<double>(what, out);
    case kArray: return read_array(depth, what, out);
    case kBool: {
      uint8_t byte = 0;
      ESPALIER_TRY(in_.read(&byte, what));
      if (byte > 1) return corrupt(what + ": expected a boolean of 0 or 1, found " + std::to_string(byte));
      *out = Value(byte == 1);
      return {};
    }
    case kString: {
      std::string text;
      ESPALIER_TRY(in_.read_string(&text, what));
      *out = Value(std::move(text));
      return {};
    }
    default: return corrupt(what + ": unknown metadata type " + std::to_string(type));
  }
}

Status Parser::read_array(int depth, const std::string& what, Value* out) {
  if (depth >= kArrayDepthMax) return corrupt(what + ": arrays nested more than " + std::to_string(kArrayDepthMax) + " deep");
  uint32_t type = 0;
  uint64_t count = 0;
  ESPALIER_TRY(in_.read(&type, what));
  ESPALIER_TRY(in_.read(&count, what));
  if (type >= kTypes) return corrupt(what + ": unknown metadata type " + std::to_string(type));
  if (count > in_.left() / kLeastBytes[type]) {
    return corrupt(what + ": an array of " + count_text(count, "elements") + " does not fit into the " +
                   count_text(in_.left(), "bytes left in the file"));
  }
  if (count > elements_left_) {
    return corrupt(what + ": metadata arrays hold more than " + count_text(kGgufElementsMax, "elements together"));
  }
  elements_left_ -= count;
  Value::Array array(static_cast<size_t>(count));
  for (Value& element : array) ESPALIER_TRY(read_value(type, depth + 1, what, &element));
  *out = Value(std::move(array));
  return {};
}

Status Parser::read_metadata() {
  out_.metadata = Value::object();
  Value::Object& members = out_.metadata.as_object();
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < keys_; ++i) {
    std::string key;
    uint32_t type = 0;
    Value value;
    ESPALIER_TRY(in_.read_name(&key, "metadata key " + std::to_string(i)));
    if (!seen.insert(key).second) return corrupt("metadata key " + key + " is repeated");
    ESPALIER_TRY(in_.read(&type, key));
    ESPALIER_TRY(read_value(type, 0, key, &value));
    members.emplace_back(std::move(key), std::move(value));
  }
  return {};
}

Status Parser::read_alignment() {
  const Value* alignment = out_.metadata.find("general.alignment");
  if (alignment == nullptr) return {};
  const int64_t n = alignment->is_int() ? alignment->as_int() : 0;
  if (n < 1 || static_cast<uint64_t>(n) > kGgufAlignmentMax || (n & (n - 1)) != 0) {
    return corrupt("general.alignment: expected a power of two up to " + std::to_string(kGgufAlignmentMax) + ", found " +
                   (alignment->is_int() ? std::to_string(n) : kind_of(*alignment)));
  }
  alignment_ = static_cast<uint64_t>(n);
  return {};
}

Status Parser::read_info(TensorView* tensor, uint64_t* offset) {
  ESPALIER_TRY(in_.read_name(&tensor->name, "tensor name " + std::to_string(out_.tensors.size())));
  const std::string where = "tensor " + tensor->name;
  uint32_t dims = 0, type = 0;
  ESPALIER_TRY(in_.read(&dims, where));
  if (dims < 1 || dims > kGgufDimsMax) {
    return corrupt(where + ": expected 1 to " + std::to_string(kGgufDimsMax) + " dimensions, found " + std::to_string(dims), tensor->name);
  }
  tensor->shape.resize(dims);
  for (uint32_t d = 0; d < dims; ++d) ESPALIER_TRY(in_.read(&tensor->shape[dims - 1 - d], where));
  ESPALIER_TRY(in_.read(&type, where));
  ESPALIER_TRY(in_.read(offset, where));
  const std::optional<StorageType> known = storage_from_ggml(type);
  if (!known) return unsupported(where + ": unknown GGUF tensor type " + std::to_string(type), tensor->name);
  tensor->type = *known;
  return {};
}

Status Parser::read_infos() {
  constexpr uint64_t kLeastInfoBytes = 8 + 4 + 8 + 4 + 8;
  if (tensors_ > in_.left() / kLeastInfoBytes) {
    return corrupt("the file claims " + count_text(tensors_, "tensors") + ", and only " + count_text(in_.left(), "bytes are left"));
  }
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < tensors_; ++i) {
    TensorView tensor;
    uint64_t offset = 0;
    ESPALIER_TRY(read_info(&tensor, &offset));
    if (!seen.insert(tensor.name).second) return corrupt("tensor " + tensor.name + " is there twice", tensor.name);
    if (offset % alignment_ != 0)
      return corrupt("tensor " + tensor.name + ": its offset " + std::to_string(offset) + " is no multiple of " + std::to_string(alignment_), tensor.name);
    offsets_.push_back(offset);
    out_.tensors.push_back(std::move(tensor));
  }
  return {};
}

// Tensors follow one another, each from the next aligned byte; after the last at most its padding.
Status Parser::place_tensors() {
  out_.header_bytes = in_.at();
  if (tensors_ == 0) return {};
  const uint64_t begin = round_up(in_.at(), alignment_);
  if (begin > file_.size()) {
    return corrupt("expected tensor data from byte " + std::to_string(begin) + ", found a file of " +
                   count_text(file_.size(), "bytes: it is cut short"));
  }
  out_.header_bytes = begin;
  const uint64_t data_bytes = file_.size() - out_.header_bytes;
  std::vector<size_t> order(out_.tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return offsets_[a] != offsets_[b] ? offsets_[a] < offsets_[b] : a < b;
  });
  uint64_t at = 0;
  for (size_t index : order) {
    TensorView& tensor = out_.tensors[index];
    const std::string where = "tensor " + tensor.name;
    const std::optional<uint64_t> size = tensor_bytes(tensor.type, tensor.shape);
    if (!size) {
      return corrupt(where + ": " + shape_text(tensor.shape) + " " + std::string(name_of(tensor.type)) +
                         " has rows that are no whole blocks, or more bytes than can be counted", tensor.name);
    }
    if (offsets_[index] != at) {
      return corrupt(where + ": expected to begin at byte " + std::to_string(at) + " of the data, found " +
                         std::to_string(offsets_[index]), tensor.name);
    }
    if (*size > data_bytes || at > data_bytes - *size) {
      return corrupt(where + ": expected " + count_text(*size, "bytes") + " from byte " + std::to_string(at) +
                         " of the data, found only " + std::to_string(data_bytes) + ": the file is cut short", tensor.name);
    }
    tensor.data = file_.subspan(begin + at, *size);
    at = round_up(at + *size, alignment_);
  }
  if (data_bytes <= at) return {};
  return corrupt("the tensors end at byte " + std::to_string(at) + " of the data, and the file has " +
                 count_text(data_bytes - at, "more bytes"));
}

Result<Gguf> Parser::run() {
  ESPALIER_TRY(read_preamble());
  ESPALIER_TRY(read_metadata());
  ESPALIER_TRY(read_alignment());
  ESPALIER_TRY(read_infos());
  ESPALIER_TRY(place_tensors());
  return std::move(out_);
}

}  // namespace

Result<Gguf> parse_gguf(std::span<const std::byte> file) { return Parser(file).run(); }

namespace {
// Exactly five digits, as every tool writes them.
bool five_digits(std::string_view text, uint32_t* out) {
  *out = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    *out = *out * 10 + static_cast<uint32_t>(c - '0');
  }
  return text.size() == 5;
}
}  // namespace

bool parse_split_name(std::string_view file_name, GgufSplitName* out) {
  constexpr std::string_view kEnd = ".gguf", kOf = "-of-";
  constexpr size_t kTail = 1 + 5 + 4 + 5 + 5;  // -00001-of-00002.gguf
  if (file_name.size() <= kTail || !file_name.ends_with(kEnd)) return false;
  const std::string_view tail = file_name.substr(file_name.size() - kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != kOf) return false;
  if (!five_digits(tail.substr(1, 5), &out->number) || !five_digits(tail.substr(10, 5), &out->count)) return false;
  out->base = std::string(file_name.substr(0, file_name.size() - kTail));
  return out->number >= 1 && out->number <= out->count;
}

std::string split_name(const std::string& base, uint32_t number, uint32_t count) {
  char tail[40];
  std::snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", number, count);
  return base + tail;
}

}  // namespace espalier
