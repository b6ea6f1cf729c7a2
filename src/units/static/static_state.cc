#include "units/static/static_state.h"

#include <algorithm>

#include "base/half.h"

namespace espalier::static_unit {
namespace {

FrameSet empty_frames(const LoweredProgram& p) {
  FrameSet out(p.states.size());
  for (size_t s = 0; s < out.size(); ++s)
    if (!p.states[s].is_kv) out[s].assign(static_cast<size_t>(p.states[s].channels) * static_cast<size_t>(p.frame_count), 0.0f);
  return out;
}

size_t size(int32_t n) { return static_cast<size_t>(n); }

}  // namespace

int32_t StateShape::bucket_for(int32_t columns) const {
  const auto at = std::lower_bound(buckets.begin(), buckets.end(), columns);
  return at == buckets.end() ? buckets.back() : *at;
}

StaticState::StaticState(const StateShape& shape) : shape_(&shape), kv_(shape.lowered->states.size()), frames_(empty_frames(*shape.lowered)) {}

void StaticState::resize_columns(int32_t columns) {
  if (columns == columns_) return;
  const size_t keep = size(std::min({columns, columns_, static_cast<int32_t>(written_ + path_.size())}));
  for (size_t s = 0; s < kv_.size(); ++s) {
    const LoweredState& state = shape_->lowered->states[s];
    if (!state.is_kv) continue;
    std::vector<float> wider(size(state.channels) * size(columns));
    for (size_t c = 0; c < size(state.channels); ++c) std::copy_n(kv_[s].data() + c * size(columns_), keep, wider.data() + c * size(columns));
    kv_[s] = std::move(wider);
  }
  columns_ = columns;
}

void StaticState::begin(PendingRows&& pending, std::vector<StateRow>&& call_rows, Role role, bool role_keeps) {
  settle();
  rows = std::move(pending);
  keeps_ = role_keeps;
  if (unwritten_.empty()) unwritten_role_ = role;
  const int32_t first = static_cast<int32_t>(unwritten_.size());
  call_rows_ = unwritten_;
  for (StateRow& row : call_rows) {
    row.parent = row.parent == kState ? first - 1 : row.parent + first;
    call_rows_.push_back(std::move(row));
  }
}

const FrameSet& StaticState::frames_at(int32_t base) const {
  for (const Base& b : bases_)
    if (b.length == base) return b.frames;
  return frames_;
}

void StaticState::advance(int32_t base, std::span<const int32_t> path, FrameSet&& frames) {
  path_.resize(size(base));
  std::erase_if(bases_, [&](const Base& b) { return b.length > base; });
  path_.insert(path_.end(), path.begin(), path.end());
  if (!path.empty()) bases_.push_back({static_cast<int32_t>(path_.size()), std::move(frames)});
}

void StaticState::keep(const std::vector<int32_t>& path) {
  std::vector<int32_t> kept;  // rows of call_rows_, all that are held and not written
  for (size_t i = 0; i < unwritten_.size() && !call_rows_.empty(); ++i) kept.push_back(static_cast<int32_t>(i));
  kept.insert(kept.end(), path.begin(), path.end());
  size_t shared = 0;
  while (shared < kept.size() && shared < path_.size() && kept[shared] == path_[shared]) ++shared;
  int32_t base = 0;
  for (const Base& b : bases_)
    if (b.length <= static_cast<int32_t>(shared)) base = b.length;
  if (shape_->any_base) base = static_cast<int32_t>(shared);
  if (base > 0) {
    frames_ = frames_at(base);
    written_ += base;
  }
  if (!call_rows_.empty()) {
    std::vector<StateRow> left;
    for (size_t i = size(base); i < kept.size(); ++i) {
      StateRow row = std::move(call_rows_[size(kept[i])]);
      row.parent = static_cast<int32_t>(left.size()) - 1;
      row.call_row = kNone;
      left.push_back(std::move(row));
    }
    unwritten_ = std::move(left);
  }
  call_rows_.clear();
  path_.clear();
  bases_.clear();
  rows.clear();
}

Status StaticState::commit(std::span<const int32_t> call_rows) {
  ESPALIER_ASSIGN(const std::vector<int32_t> entries, rows.path(call_rows));
  if (!keeps_ && !entries.empty()) return invalid("commit: the rows of this function are not kept");
  std::vector<int32_t> path;
  for (int32_t e : entries) {
    tokens_.push_back(rows.entries()[size(e)].token);
    path.push_back(static_cast<int32_t>(unwritten_.size()) + e);
  }
  keep(path);
  return {};
}

std::unique_ptr<State> StaticState::fork() const {
  auto copy = std::make_unique<StaticState>(*this);
  copy->settle();
  return copy;
}

Status StaticState::restore(const State& other) {
  const auto* from = dynamic_cast<const StaticState*>(&other);
  if (from == nullptr || from->shape_ != shape_) return invalid("restore: the snapshot belongs to another model");
  if (from != this) *this = *from;
  settle();
  return {};
}

void StaticState::export_kv(NeutralState& out, const StateDecl& decl, size_t lowered) const {
  NeutralState::Tensor t{shape_->lowered->states[lowered].name, shape_->rounds ? "f16" : "f32", {}};
  const size_t heads = size(decl.n_kv_heads), hd = size(decl.head_dim), held = size(written_);
  t.data.resize(heads * held * hd);
  for (size_t h = 0; h < heads; ++h)
    for (size_t p = 0; p < held; ++p)
      for (size_t d = 0; d < hd; ++d) t.data[(h * held + p) * hd + d] = kv_[lowered][(h * hd + d) * size(columns_) + p];
  out.tensors.push_back(std::move(t));
}

NeutralState StaticState::export_neutral() const {
  if (!unwritten_.empty()) {  // a copy writes what is not written: a state that is looked at does not change
    StaticState copy(*this);
    copy.settle();
    if (shape_->flush(copy).ok() && copy.unwritten_.empty()) return copy.export_neutral();
  }
  NeutralState out;
  out.program_hash = shape_->hash;
  out.tokens.assign(tokens_.begin(), tokens_.begin() + written_);
  const LoweredProgram& lowered = *shape_->lowered;
  for (size_t s = 0; s < lowered.states.size(); ++s) {
    const StateDecl& decl = shape_->program->states[size(lowered.states[s].source)];
    if (lowered.states[s].is_kv) {
      export_kv(out, decl, s);
      continue;
    }
    NeutralState::Tensor t{decl.name, shape_->rounds ? "f16" : "f32", {}};
    const size_t width = size(decl.width), all = size(lowered.frame_count), count = size(decl.frame_count);
    t.data.resize(count * width);
    for (size_t f = 0; f < count; ++f)
      for (size_t c = 0; c < width; ++c) t.data[f * width + c] = frames_[s][c * all + all - count + f];
    out.tensors.push_back(std::move(t));
  }
  return out;
}

Status StaticState::import_neutral(const NeutralState& neutral, std::string* note) {
  ESPALIER_TRY(check_neutral(*shape_->program, neutral));
  const int32_t held = static_cast<int32_t>(neutral.tokens.size());
  if (held > shape_->columns_max) return unsupported("the saved state holds " + std::to_string(held) + " rows, and the largest bucket takes " + std::to_string(shape_->columns_max));
  const LoweredProgram& lowered = *shape_->lowered;
  if (lowered.kv == KvForm::dynamic && held % kBlockRows != 0)
    return unsupported("the saved state holds " + std::to_string(held) + " rows, and K/V that are written in blocks begin at a multiple of " + std::to_string(kBlockRows));
  StaticState fresh(*shape_);
  fresh.resize_columns(shape_->bucket_for(held));
  bool rounded = false;
  const auto value = [&](float v) {
    const float r = shape_->rounds ? f16_to_f32(f32_to_f16(v)) : v;
    rounded = rounded || r != v;
    return r;
  };
  for (size_t s = 0; s < lowered.states.size(); ++s) {
    const StateDecl& decl = shape_->program->states[size(lowered.states[s].source)];
    const std::vector<float>& data = neutral.tensors[s].data;
    if (!lowered.states[s].is_kv) {
      const size_t width = size(decl.width), all = size(lowered.frame_count), count = size(decl.frame_count);
      for (size_t f = 0; f < count; ++f)
        for (size_t c = 0; c < width; ++c) fresh.frames_[s][c * all + all - count + f] = value(data[f * width + c]);
      continue;
    }
    if (data.empty() && held > 0) return unsupported("the saved state has no K/V of " + decl.name + ": a part of the model has not run");
    const size_t heads = size(decl.n_kv_heads), hd = size(decl.head_dim), n = size(held);
    for (size_t h = 0; h < heads; ++h)
      for (size_t p = 0; p < n; ++p)
        for (size_t d = 0; d < hd; ++d) fresh.kv_[s][(h * hd + d) * size(fresh.columns_) + p] = value(data[(h * n + p) * hd + d]);
  }
  fresh.tokens_ = neutral.tokens;
  fresh.written_ = held;
  *this = std::move(fresh);
  if (note != nullptr) *note = rounded ? "values of the saved state were rounded to fp16" : "";
  return {};
}

}  // namespace espalier::static_unit
