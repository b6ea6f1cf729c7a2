#include "program/program.h"

#include <bit>

namespace espalier {
namespace {

class Fnv {
 public:
  void bytes(const void* p, size_t n) {
    const unsigned char* b = static_cast<const unsigned char*>(p);
    for (size_t i = 0; i < n; ++i) h_ = (h_ ^ b[i]) * 0x100000001b3ull;
  }
  void number(double d) {
    const uint64_t u = std::bit_cast<uint64_t>(d);
    unsigned char le[8];
    for (int i = 0; i < 8; ++i) le[i] = static_cast<unsigned char>(u >> (8 * i));
    bytes(le, 8);
  }
  uint64_t value() const { return h_; }

 private:
  uint64_t h_ = 0xcbf29ce484222325ull;
};

void hash_attr(const OpAttr& attr, Fnv& fnv) {
  if (const auto* a = std::get_if<RmsNormAttr>(&attr)) fnv.number(a->eps);
  if (const auto* a = std::get_if<QkNormRopeAttr>(&attr)) {
    fnv.number(a->eps);
    fnv.number(a->q_scale);
  }
}

}  // namespace

const char* role_name(Role role) {
  switch (role) {
    case Role::step: return "step";
    case Role::context: return "context";
    case Role::block: return "block";
    case Role::encode: return "encode";
    case Role::markov: return "markov";
  }
  return "?";
}

const Function* Program::find(Role role) const {
  for (const Function& f : functions)
    if (f.role == role) return &f;
  return nullptr;
}

// The dump states every integer and name; the numbers that it prints rounded are added exactly.
uint64_t program_hash(const Program& program) {
  Fnv fnv;
  const std::string text = dump(program);
  fnv.bytes(text.data(), text.size());
  for (const RopeSpec& r : program.ropes) {
    for (double d : {r.theta, r.factor, r.low_freq_factor, r.high_freq_factor, r.original_context}) fnv.number(d);
    for (float d : r.divisors) fnv.number(d);
  }
  for (const Function& f : program.functions)
    for (const Op& op : f.ops) hash_attr(op.attr, fnv);
  return fnv.value();
}

}  // namespace espalier
