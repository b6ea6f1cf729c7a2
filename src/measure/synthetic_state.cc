#include "measure/synthetic_state.h"

namespace espalier {
namespace {

// In (-1, 1).
float next_value(uint32_t& s) {
  s = s * 1664525u + 1013904223u;
  return static_cast<float>(static_cast<int32_t>(s >> 8) - (1 << 23)) * 0x1p-23f;
}

}  // namespace

int32_t synthetic_token(int32_t i, int32_t vocabulary) {
  return static_cast<int32_t>((static_cast<uint32_t>(i) * 2654435761u >> 8) % static_cast<uint32_t>(vocabulary));
}

Status hold_synthetic(const Program& program, State& state, int32_t length, int32_t vocabulary) {
  NeutralState neutral;
  neutral.program_hash = program_hash(program);
  for (int32_t i = 0; i < length; ++i) neutral.tokens.push_back(synthetic_token(i, vocabulary));
  uint32_t seed = 1;
  const auto add = [&](const std::string& name, size_t floats) {
    NeutralState::Tensor& t = neutral.tensors.emplace_back(NeutralState::Tensor{name, "f32", std::vector<float>(floats)});
    for (float& v : t.data) v = next_value(seed);
  };
  for (const StateDecl& s : program.states) {
    if (s.kind == StateDecl::Kind::frames) {
      add(s.name, static_cast<size_t>(s.frame_count) * static_cast<size_t>(s.width));
      continue;
    }
    const size_t floats = static_cast<size_t>(s.n_kv_heads) * static_cast<size_t>(s.head_dim) * static_cast<size_t>(length);
    add(s.name + ".k", floats);
    add(s.name + ".v", floats);
  }
  return state.import_neutral(neutral, nullptr);
}

}  // namespace espalier
