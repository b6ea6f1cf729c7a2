#include "units/reference/reference_state.h"

#include <algorithm>

namespace espalier::reference {
namespace {

size_t row_width(const StateDecl& s) {
  return s.kind == StateDecl::Kind::kv ? static_cast<size_t>(s.n_kv_heads) * static_cast<size_t>(s.head_dim) : static_cast<size_t>(s.width);
}

void append_row(std::vector<float>& to, const std::vector<float>& from, size_t row, size_t width) {
  to.insert(to.end(), from.begin() + static_cast<ptrdiff_t>(row * width), from.begin() + static_cast<ptrdiff_t>((row + 1) * width));
}

// (rows, heads, hd) <-> (heads, rows, hd)
std::vector<float> swap_axes(const std::vector<float>& in, size_t a, size_t b, size_t inner) {
  std::vector<float> out(in.size());
  for (size_t i = 0; i < a; ++i)
    for (size_t j = 0; j < b; ++j) std::copy_n(&in[(i * b + j) * inner], inner, &out[(j * a + i) * inner]);
  return out;
}

}  // namespace

ReferenceState::ReferenceState(const Program& program) : program_(&program), hash_(program_hash(program)) {
  kv.resize(program.states.size());
  frames.resize(program.states.size());
  for (size_t s = 0; s < program.states.size(); ++s) {
    const StateDecl& decl = program.states[s];
    if (decl.kind == StateDecl::Kind::frames)
      frames[s].held.assign(static_cast<size_t>(decl.frame_count) * static_cast<size_t>(decl.width), 0.0f);
  }
}

void ReferenceState::drop_pending() {
  for (KvSlot& slot : kv) {
    slot.pending_k.clear();
    slot.pending_v.clear();
  }
  for (FrameSlot& slot : frames) slot.pending.clear();
}

Status ReferenceState::commit(std::span<const int32_t> call_rows) {
  ESPALIER_ASSIGN(const std::vector<int32_t> path, rows.path(call_rows));
  for (size_t s = 0; s < program_->states.size(); ++s) {
    const size_t width = row_width(program_->states[s]);
    for (int32_t row : path) {
      const size_t r = static_cast<size_t>(row);
      if (!kv[s].pending_k.empty()) {
        append_row(kv[s].k, kv[s].pending_k, r, width);
        append_row(kv[s].v, kv[s].pending_v, r, width);
      }
      if (!frames[s].pending.empty() && !frames[s].held.empty()) {
        append_row(frames[s].held, frames[s].pending, r, width);
        frames[s].held.erase(frames[s].held.begin(), frames[s].held.begin() + static_cast<ptrdiff_t>(width));
      }
    }
  }
  for (int32_t row : path) tokens_.push_back(rows.entries()[static_cast<size_t>(row)].token);
  rows.clear();
  drop_pending();
  return {};
}

std::unique_ptr<State> ReferenceState::fork() const {
  auto copy = std::make_unique<ReferenceState>(*program_);
  copy->kv = kv;
  copy->frames = frames;
  copy->tokens_ = tokens_;
  copy->drop_pending();
  return copy;
}

Status ReferenceState::restore(const State& other) {
  const auto* from = dynamic_cast<const ReferenceState*>(&other);
  if (from == nullptr || from->program_ != program_) return invalid("restore: the snapshot belongs to another model");
  kv = from->kv;
  frames = from->frames;
  tokens_ = from->tokens_;
  rows.clear();
  drop_pending();
  return {};
}

NeutralState ReferenceState::export_neutral() const {
  NeutralState out;
  out.program_hash = hash_;
  out.tokens = tokens_;
  for (size_t s = 0; s < program_->states.size(); ++s) {
    const StateDecl& decl = program_->states[s];
    if (decl.kind == StateDecl::Kind::frames) {
      out.tensors.push_back({decl.name, "f32", frames[s].held});
      continue;
    }
    const size_t heads = static_cast<size_t>(decl.n_kv_heads), hd = static_cast<size_t>(decl.head_dim);
    const size_t held = kv[s].k.size() / (heads * hd);
    out.tensors.push_back({decl.name + ".k", "f32", swap_axes(kv[s].k, held, heads, hd)});
    out.tensors.push_back({decl.name + ".v", "f32", swap_axes(kv[s].v, held, heads, hd)});
  }
  return out;
}

Status ReferenceState::import_neutral(const NeutralState& neutral, std::string* note) {
  ESPALIER_TRY(check_neutral(*program_, neutral));
  size_t t = 0;
  for (size_t s = 0; s < program_->states.size(); ++s) {
    const StateDecl& decl = program_->states[s];
    if (decl.kind == StateDecl::Kind::frames) {
      frames[s].held = neutral.tensors[t++].data;
      continue;
    }
    const size_t heads = static_cast<size_t>(decl.n_kv_heads), hd = static_cast<size_t>(decl.head_dim);
    const size_t held = neutral.tensors[t].data.size() / (heads * hd);
    kv[s].k = swap_axes(neutral.tensors[t++].data, heads, held, hd);
    kv[s].v = swap_axes(neutral.tensors[t++].data, heads, held, hd);
  }
  tokens_ = neutral.tokens;
  rows.clear();
  drop_pending();
  if (note != nullptr) note->clear();
  return {};
}

}  // namespace espalier::reference
