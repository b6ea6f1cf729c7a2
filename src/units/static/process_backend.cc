#include "units/static/process_backend.h"

#include <algorithm>

#include "base/half.h"
#include "lower/port_names.h"
#include "units/static/child_process.h"

namespace espalier {
namespace {

enum Kind : uint8_t { kInput, kState, kOutput };
enum Type : uint8_t { kF16, kI32, kU32 };

// Bodies of frames; tools/aimodel.py has the protocol.
class Writer {
 public:
  void u8(uint8_t v) { bytes_.push_back(v); }
  void u32(uint32_t v) {
    for (int i = 0; i < 4; ++i) u8(static_cast<uint8_t>(v >> (8 * i)));
  }
  void text(const std::string& s) {
    u32(static_cast<uint32_t>(s.size()));
    bytes_.insert(bytes_.end(), s.begin(), s.end());
  }
  void array(const std::string& name, Kind kind, const LoweredValue& value, std::span<const float> data) {
    text(name);
    u8(kind);
    u8(value.type == ScalarType::i32 ? kI32 : kF16);
    u8(static_cast<uint8_t>(value.shape.size()));
    for (int32_t d : value.shape) u32(static_cast<uint32_t>(d));
    bytes_.reserve(bytes_.size() + data.size() * 4);
    for (float x : data) {
      if (value.type == ScalarType::i32) {
        u32(static_cast<uint32_t>(static_cast<int32_t>(x)));
        continue;
      }
      const uint16_t h = f32_to_f16(x);
      u8(static_cast<uint8_t>(h));
      u8(static_cast<uint8_t>(h >> 8));
    }
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// Every length is checked against what is left.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : left_(bytes) {}
  std::span<const uint8_t> left() const { return left_; }
  bool u8(uint8_t& v) {
    if (left_.empty()) return false;
    v = left_[0];
    left_ = left_.subspan(1);
    return true;
  }
  bool u32(uint32_t& v) {
    if (left_.size() < 4) return false;
    v = 0;
    for (size_t i = 0; i < 4; ++i) v |= static_cast<uint32_t>(left_[i]) << (8 * i);
    left_ = left_.subspan(4);
    return true;
  }
  bool text(std::string& s) {
    uint32_t n = 0;
    if (!u32(n) || n > left_.size()) return false;
    s.assign(reinterpret_cast<const char*>(left_.data()), n);
    left_ = left_.subspan(n);
    return true;
  }
  // Into `to`, as whole numbers where they are.
  bool values(uint8_t type, uint64_t count, std::vector<float>& to) {
    const size_t width = type == kF16 ? 2 : 4;
    if (count > left_.size() / width) return false;
    to.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < to.size(); ++i) {
      const uint8_t* b = left_.data() + i * width;
      if (type == kF16) to[i] = f16_to_f32(static_cast<uint16_t>(b[0] | b[1] << 8));
      else to[i] = static_cast<float>(static_cast<int32_t>(b[0] | b[1] << 8 | b[2] << 16 | static_cast<uint32_t>(b[3]) << 24));
    }
    left_ = left_.subspan(to.size() * width);
    return true;
  }

 private:
  std::span<const uint8_t> left_;
};

struct Array {
  std::string name;
  uint8_t kind = 0;
  Shape shape;
  std::vector<float> data;
};

bool read_array(Reader& in, Array& a) {
  uint8_t type = 0, axes = 0;
  if (!in.text(a.name) || !in.u8(a.kind) || !in.u8(type) || !in.u8(axes) || type > kU32 || axes > 8) return false;
  uint64_t count = 1;
  for (uint8_t i = 0; i < axes; ++i) {
    uint32_t d = 0;
    if (!in.u32(d) || d > 1u << 30) return false;
    if (d != 0 && count > (1ull << 34) / d) return false;
    count *= d;
    a.shape.push_back(static_cast<int32_t>(d));
  }
  return in.values(type, count, a.data);
}

class ProcessBackend : public StaticBackend {
 public:
  ProcessBackend(const LoweredProgram& lowered, std::string name, std::unique_ptr<ChildProcess> child)
      : lowered_(lowered), name_(std::move(name)), child_(std::move(child)) {}

  // The first answer: it has loaded.
  Status load() {
    ESPALIER_ASSIGN([[maybe_unused]] const std::vector<Array> none, answer());
    return {};
  }

  Status run(int32_t function, std::span<const NamedValues> inputs, std::span<std::vector<float>> states, std::vector<NamedValues>& outputs) override {
    if (function < 0 || static_cast<size_t>(function) >= lowered_.functions.size()) return invalid(name_ + ": function " + std::to_string(function) + " of " + std::to_string(lowered_.functions.size()));
    const LoweredFunction& f = lowered_.functions[static_cast<size_t>(function)];
    ESPALIER_ASSIGN(const std::vector<uint8_t> call, call_of(f, inputs, states));
    outputs.clear();
    if (!is_exported(f)) return {};
    ESPALIER_TRY(child_->send(call));
    Result<std::vector<Array>> found = answer();
    if (!found.ok()) return std::move(found).status().with_context("function " + function_name(f.spec));
    return take(f, *found, states, outputs);
  }

 private:
  Status check(const std::string& what, size_t found, const Shape& expected) const {
    if (found == static_cast<size_t>(elements(expected))) return {};
    return invalid(name_ + ": " + what + " has " + std::to_string(found) + " values, expected " + shape_text(expected));
  }

  Result<std::vector<uint8_t>> call_of(const LoweredFunction& f, std::span<const NamedValues> inputs, std::span<const std::vector<float>> states) const {
    if (states.size() != lowered_.states.size()) return invalid(name_ + ": " + std::to_string(states.size()) + " states, expected " + std::to_string(lowered_.states.size()));
    Writer w;
    w.text(function_name(f.spec));
    const std::vector<int32_t> used = states_of(f);
    w.u32(static_cast<uint32_t>(f.inputs.size() + used.size()));
    for (const LoweredPort& port : f.inputs) {
      const LoweredValue& value = f.values[static_cast<size_t>(port.value)];
      const auto given = std::find_if(inputs.begin(), inputs.end(), [&](const NamedValues& v) { return v.name == port.name; });
      if (given == inputs.end()) return invalid(name_ + ": input " + port.name + " is missing");
      ESPALIER_TRY(check("input " + port.name, given->data.size(), value.shape));
      w.array(port_name(port.name), kInput, value, given->data);
    }
    for (int32_t s : used) {
      const LoweredState& state = lowered_.states[static_cast<size_t>(s)];
      const Shape shape = state_shape(state, f.spec);
      ESPALIER_TRY(check("state " + state.name, states[static_cast<size_t>(s)].size(), shape));
      w.array(port_name(state.name), kState, {state.name, ScalarType::f16, shape}, states[static_cast<size_t>(s)]);
    }
    return w.bytes();
  }

  Result<std::vector<Array>> answer() {
    ESPALIER_ASSIGN(const std::vector<uint8_t> body, child_->receive());
    Reader in(body);
    uint8_t is_well = 0;
    uint32_t count = 0;
    if (in.u8(is_well) && is_well == 0) return Status(Code::internal, name_ + ": " + std::string(in.left().begin(), in.left().end()));
    if (is_well != 1 || !in.u32(count)) return corrupt(name_ + " answers with something else than an answer");
    std::vector<Array> out;
    for (uint32_t i = 0; i < count; ++i)
      if (!read_array(in, out.emplace_back())) return corrupt(name_ + " answers with an array that ends early");
    return out;
  }

  // Nothing is changed before all of it is there.
  Status take(const LoweredFunction& f, std::vector<Array>& found, std::span<std::vector<float>> states, std::vector<NamedValues>& outputs) const {
    const auto find = [&](const std::string& name, Kind kind) {
      return std::find_if(found.begin(), found.end(), [&](const Array& a) { return a.name == name && a.kind == kind; });
    };
    const std::vector<int32_t> used = states_of(f);
    for (const LoweredPort& port : f.outputs) {
      const auto a = find(output_name(lowered_, port), kOutput);
      if (a == found.end() || a->shape != f.values[static_cast<size_t>(port.value)].shape) return corrupt(name_ + " gives no output " + port.name + " of the shape " + shape_text(f.values[static_cast<size_t>(port.value)].shape));
    }
    for (int32_t s : used) {
      const LoweredState& state = lowered_.states[static_cast<size_t>(s)];
      const auto a = find(port_name(state.name), kState);
      if (a == found.end() || a->shape != state_shape(state, f.spec)) return corrupt(name_ + " gives no state " + state.name + " of the shape " + shape_text(state_shape(state, f.spec)));
    }
    for (const LoweredPort& port : f.outputs) outputs.push_back({port.name, find(output_name(lowered_, port), kOutput)->data});
    for (int32_t s : used) states[static_cast<size_t>(s)] = std::move(find(port_name(lowered_.states[static_cast<size_t>(s)].name), kState)->data);
    return {};
  }

  const LoweredProgram& lowered_;
  std::string name_;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace

Result<std::unique_ptr<StaticBackend>> process_backend(const LoweredProgram& lowered, std::string name, const std::vector<std::string>& command, const std::string& log) {
  ESPALIER_ASSIGN(std::unique_ptr<ChildProcess> child, ChildProcess::start(name, command, log));
  auto backend = std::make_unique<ProcessBackend>(lowered, std::move(name), std::move(child));
  ESPALIER_TRY(backend->load());
  return std::unique_ptr<StaticBackend>(std::move(backend));
}

}  // namespace espalier
