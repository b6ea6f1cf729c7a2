#include "units/cpu/cpu_state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace espalier::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t page_count(size_t positions) { return (positions + kKvPagePositions - 1) / kKvPagePositions; }

Status no_memory(size_t bytes) { return {Code::out_of_memory, "the system refused " + std::to_string(bytes) + " bytes for K/V or scratch"}; }

}  // namespace

void Buffer::Free::operator()(std::byte* p) const { std::free(p); }

bool Buffer::reserve(size_t bytes) {
  if (bytes <= size_) return true;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  data_.reset();
  size_ = 0;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (data_ == nullptr) return false;
#if defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) (void)madvise(data_.get(), rounded, MADV_HUGEPAGE);
#endif
  size_ = rounded;
  return true;
}

StateLayout state_layout(const Program& program, KvType kv_type) {
  StateLayout layout;
  layout.kv_type = kv_type;
  layout.kv.resize(program.states.size());
  layout.offset.resize(program.states.size());
  for (size_t s = 0; s < program.states.size(); ++s) {
    const StateDecl& decl = program.states[s];
    if (decl.kind == StateDecl::Kind::frames) {
      layout.offset[s] = layout.frame_floats;
      layout.frame_floats += static_cast<size_t>(decl.width);
      continue;
    }
    layout.kv[s] = kv_layout(kv_type, static_cast<uint32_t>(decl.head_dim));
    layout.offset[s] = layout.page_bytes;
    layout.page_bytes += layout.kv[s].bytes * static_cast<size_t>(decl.n_kv_heads);
  }
  return layout;
}

CpuState::CpuState(const Program& program, const StateLayout& layout)
    : program_(&program), layout_(&layout), hash_(program_hash(program)), filled_(program.states.size(), true) {
  frames.resize(program.states.size());
  touched.assign(program.states.size(), false);
  for (size_t s = 0; s < program.states.size(); ++s)
    if (program.states[s].kind == StateDecl::Kind::frames)
      frames[s].assign(static_cast<size_t>(program.states[s].frame_count) * static_cast<size_t>(program.states[s].width), 0.0f);
}

Status CpuState::prepare(size_t n_rows, std::shared_ptr<CallFrames> shared_frames) {
  call_frames = std::move(shared_frames);
  touched.assign(touched.size(), false);
  if (layout_->page_bytes == 0) return {};
  while (fresh_.size() < page_count(n_rows)) {
    auto page = std::make_shared<Page>();
    if (!page->reserve(layout_->page_bytes)) return no_memory(layout_->page_bytes);
    std::memset(page->bytes(), 0, layout_->page_bytes);  // lanes that no row has written are read by vector loads
    fresh_.push_back(std::move(page));
    fresh_pages.push_back(fresh_.back()->bytes());
  }
  return {};
}

Status CpuState::own_page(size_t index) {
  const bool exists = index < pages_.size();
  if (exists && pages_[index].use_count() == 1) return {};
  auto page = std::make_shared<Page>();
  if (!page->reserve(layout_->page_bytes)) return no_memory(layout_->page_bytes);
  if (exists)
    std::memcpy(page->bytes(), pages_[index]->bytes(), layout_->page_bytes);
  else
    std::memset(page->bytes(), 0, layout_->page_bytes);
  if (!exists) pages_.emplace_back();
  pages_[index] = std::move(page);
  refresh_pointers();
  return {};
}

void CpuState::refresh_pointers() {
  held_pages.resize(pages_.size());
  for (size_t i = 0; i < pages_.size(); ++i) held_pages[i] = pages_[i]->bytes();
}

Status CpuState::commit(std::span<const int32_t> call_rows) {
  ESPALIER_ASSIGN(const std::vector<int32_t> path, rows.path(call_rows));
  const size_t held = tokens_.size();
  if (layout_->page_bytes != 0)
    for (size_t p = held / kKvPagePositions; p < page_count(held + path.size()); ++p) ESPALIER_TRY(own_page(p));
  for (size_t s = 0; s < program_->states.size(); ++s) {
    if (!path.empty()) filled_[s] = filled_[s] && touched[s];
    if (!touched[s]) continue;
    const StateDecl& decl = program_->states[s];
    if (decl.kind == StateDecl::Kind::frames) {
      commit_frames(s, path);
      continue;
    }
    for (size_t i = 0; i < path.size(); ++i) {
      const size_t to = held + i, from = static_cast<size_t>(path[i]);
      for (size_t h = 0; h < static_cast<size_t>(decl.n_kv_heads); ++h) {
        const size_t at = layout_->offset[s] + h * layout_->kv[s].bytes;
        kv_copy(layout_->kv[s], fresh_pages[from / kKvPagePositions] + at, from % kKvPagePositions,
                held_pages[to / kKvPagePositions] + at, to % kKvPagePositions, 1);
      }
    }
  }
  for (int32_t row : path) tokens_.push_back(rows.entries()[static_cast<size_t>(row)].token);
  rows.clear();
  call_frames.reset();
  return {};
}

void CpuState::commit_frames(size_t s, std::span<const int32_t> path) {
  const StateDecl& decl = program_->states[s];
  const size_t width = static_cast<size_t>(decl.width), count = static_cast<size_t>(decl.frame_count);
  if (count == 0) return;
  const float* u = call_frames->memory.floats() + layout_->offset[s] * call_frames->rows;
  const size_t keep = count > path.size() ? count - path.size() : 0;  // old frames that stay
  std::vector<float>& held = frames[s];
  std::copy(held.end() - static_cast<ptrdiff_t>(keep * width), held.end(), held.begin());
  for (size_t i = keep; i < count; ++i) {
    const int32_t entry = path[path.size() - (count - i)];
    const size_t row = static_cast<size_t>(rows.entries()[static_cast<size_t>(entry)].call_row);
    std::copy_n(u + row * width, width, held.begin() + static_cast<ptrdiff_t>(i * width));
  }
}

void CpuState::copy_from(const CpuState& other) {
  frames = other.frames;
  tokens_ = other.tokens_;
  filled_ = other.filled_;
  pages_ = other.pages_;
  refresh_pointers();
  rows.clear();
  call_frames.reset();
}

std::unique_ptr<State> CpuState::fork() const {
  auto copy = std::make_unique<CpuState>(*program_, *layout_);
  copy->copy_from(*this);
  return copy;
}

Status CpuState::restore(const State& other) {
  const auto* from = dynamic_cast<const CpuState*>(&other);
  if (from == nullptr || from->program_ != program_) return invalid("restore: the snapshot belongs to another model");
  copy_from(*from);
  return {};
}

NeutralState CpuState::export_neutral() const {
  NeutralState out;
  out.program_hash = hash_;
  out.tokens = tokens_;
  for (size_t s = 0; s < program_->states.size(); ++s) {
    const StateDecl& decl = program_->states[s];
    if (decl.kind == StateDecl::Kind::frames) {
      out.tensors.push_back({decl.name, "f32", frames[s]});
      continue;
    }
    const size_t heads = static_cast<size_t>(decl.n_kv_heads), hd = static_cast<size_t>(decl.head_dim);
    const size_t held = filled_[s] ? tokens_.size() : 0;
    NeutralState::Tensor k{decl.name + ".k", layout_->kv_type == KvType::f16 ? "f16" : "i8", std::vector<float>(heads * held * hd)};
    NeutralState::Tensor v{decl.name + ".v", k.dtype, std::vector<float>(heads * held * hd)};
    for (size_t h = 0; h < heads; ++h)
      for (size_t p = 0; p < held; ++p) {
        const std::byte* block = held_pages[p / kKvPagePositions] + layout_->offset[s] + h * layout_->kv[s].bytes;
        kv_load(layout_->kv[s], block, static_cast<uint32_t>(p % kKvPagePositions), &k.data[(h * held + p) * hd], &v.data[(h * held + p) * hd]);
      }
    out.tensors.push_back(std::move(k));
    out.tensors.push_back(std::move(v));
  }
  return out;
}

Status CpuState::import_neutral(const NeutralState& neutral, std::string* note) {
  ESPALIER_TRY(check_neutral(*program_, neutral));
  CpuState fresh(*program_, *layout_);
  bool rounded = false;
  if (layout_->page_bytes != 0)
    for (size_t p = 0; p < page_count(neutral.tokens.size()); ++p) ESPALIER_TRY(fresh.own_page(p));
  size_t t = 0;
  for (size_t s = 0; s < program_->states.size(); ++s) {
    const StateDecl& decl = program_->states[s];
    if (decl.kind == StateDecl::Kind::frames) {
      fresh.frames[s] = neutral.tensors[t++].data;
      continue;
    }
    const std::vector<float>& k = neutral.tensors[t++].data;
    const std::vector<float>& v = neutral.tensors[t++].data;
    const size_t heads = static_cast<size_t>(decl.n_kv_heads), hd = static_cast<size_t>(decl.head_dim), held = k.size() / (heads * hd);
    fresh.filled_[s] = held == neutral.tokens.size();
    std::vector<float> back_k(hd), back_v(hd);
    for (size_t h = 0; h < heads; ++h)
      for (size_t p = 0; p < held; ++p) {
        std::byte* block = fresh.held_pages[p / kKvPagePositions] + layout_->offset[s] + h * layout_->kv[s].bytes;
        const uint32_t lane = static_cast<uint32_t>(p % kKvPagePositions);
        const float *from_k = &k[(h * held + p) * hd], *from_v = &v[(h * held + p) * hd];
        kv_store(layout_->kv[s], block, lane, from_k, from_v);
        kv_load(layout_->kv[s], block, lane, back_k.data(), back_v.data());
        rounded = rounded || !std::equal(back_k.begin(), back_k.end(), from_k) || !std::equal(back_v.begin(), back_v.end(), from_v);
      }
  }
  fresh.tokens_ = neutral.tokens;
  copy_from(fresh);
  if (note != nullptr) *note = rounded ? std::string("K/V were rounded to ") + (layout_->kv_type == KvType::f16 ? "fp16" : "int8") : std::string();
  return {};
}

}  // namespace espalier::cpu
