#include "units/static/window_inputs.h"

#include <algorithm>
#include <cstdlib>

namespace espalier::static_unit {
namespace {

size_t size(int32_t n) { return static_cast<size_t>(n); }

class Filler {
 public:
  Filler(const LoweredProgram& p, const LoweredFunction& f, const Function& original, const HostTables& tables, const WindowLayout& layout)
      : p_(p), f_(f), original_(original), tables_(tables), layout_(layout), w_(size(f.spec.rows)) {}

  std::vector<NamedValues> run() {
    std::vector<NamedValues> out;
    for (const LoweredPort& port : f_.inputs) {
      const Shape& shape = f_.values[size(port.value)].shape;
      NamedValues v{port.name, std::vector<float>(static_cast<size_t>(elements(shape)))};
      fill(port.name, shape, v.data);
      out.push_back(std::move(v));
    }
    return out;
  }

 private:
  void fill(const std::string& name, const Shape& shape, std::vector<float>& to) {
    if (name == "embedding") return embedding(to);
    if (name.starts_with("cos.")) return angles(name, 0, to);
    if (name.starts_with("sin.")) return angles(name, 1, to);
    if (name == "mask") return mask(size(shape[2]) - w_, to);
    if (name.starts_with("ancestor.")) return ancestor(size(std::atoi(name.c_str() + 9)), to);
    if (name == "keep") return keep(to);
    if (name == "place") return place(to);
    if (name == "place_frames") return place_frames(to);
    if (name == "choose") return choose(size(shape[3]), to);
    if (name == "offset") {
      to[0] = static_cast<float>(layout_.parts.empty() ? 0 : layout_.parts[0].first_column + layout_.parts[0].columns);
      return;
    }
    features(name, to);
  }

  // Padding repeats the first row: a row of zeros would divide by zero where an accelerator flushes the norm's eps.
  const StateRow& row(size_t r) const { return *layout_.rows[r < layout_.rows.size() ? r : 0].row; }

  void embedding(std::vector<float>& to) const {
    const size_t n = tables_.embedding_width;
    for (size_t r = 0; r < w_; ++r)
      for (size_t c = 0; c < n; ++c) to[c * w_ + r] = tables_.embedding[size(row(r).token) * n + c];
  }

  void angles(const std::string& name, size_t part, std::vector<float>& to) const {
    const RopeTable& table = tables_.ropes[size(std::atoi(name.c_str() + 4))];
    const size_t half = table.head_dim() / 2;
    std::vector<float> both(2 * half);
    for (size_t r = 0; r < w_; ++r) {
      table.fill_row(row(r).position, both.data());
      for (size_t i = 0; i < half; ++i) to[i * w_ + r] = both[part * half + i];
    }
  }

  // A padding row sees itself, so that its softmax has a key.
  void mask(size_t columns, std::vector<float>& to) const {
    std::fill(to.begin(), to.end(), kMasked);
    for (size_t r = 0; r < w_; ++r) {
      to[(columns + r) * w_ + r] = 0;
      if (r >= layout_.rows.size()) continue;
      const WindowRow& row = layout_.rows[r];
      const WindowPart& part = layout_.parts[size(row.part)];
      for (size_t c = 0; c < size(part.columns) && columns > 0; ++c) to[(size(part.first_column) + c) * w_ + r] = 0;
      for (int32_t a : row.chain) to[(columns + size(a)) * w_ + r] = 0;
      for (size_t o = 0; o < layout_.rows.size() && layout_.group; ++o)
        if (layout_.rows[o].part == row.part) to[(columns + o) * w_ + r] = 0;
    }
  }

  void ancestor(size_t k, std::vector<float>& to) const {
    const size_t frames = size(p_.frame_count);
    for (size_t r = 0; r < layout_.rows.size(); ++r) {
      const WindowRow& row = layout_.rows[r];
      size_t from = static_cast<size_t>(kFrameSlots);
      if (k < row.chain.size()) from += size(row.chain[k]);
      else from = size(row.part) * frames + frames - (k - row.chain.size() + 1);
      to[from * w_ + r] = 1;
    }
  }

  void keep(std::vector<float>& to) const {
    std::fill(to.begin(), to.end(), 1.0f);
    for (const WindowPart& part : layout_.parts)
      for (size_t i = 0; i < part.placed.size(); ++i) to[size(part.first_column + part.columns) + i] = 0;
  }

  void place(std::vector<float>& to) const {
    for (const WindowPart& part : layout_.parts)
      for (size_t i = 0; i < part.placed.size(); ++i) to[size(part.placed[i]) * size(f_.spec.bucket) + size(part.first_column + part.columns) + i] = 1;
  }

  // The last frames of old ones and placed rows together.
  void place_frames(std::vector<float>& to) const {
    const size_t frames = size(p_.frame_count), slots = static_cast<size_t>(kFrameSlots);
    for (size_t p = 0; p < layout_.parts.size(); ++p) {
      const std::vector<int32_t>& placed = layout_.parts[p].placed;
      for (size_t c = 0; c < frames; ++c) {
        const size_t at = c + placed.size();
        const size_t from = at < frames ? p * frames + at : slots + size(placed[at - frames]);
        to[from * slots + p * frames + c] = 1;
      }
    }
  }

  void choose(size_t width, std::vector<float>& to) const {
    for (size_t i = 0; i < layout_.chosen.size(); ++i) to[size(layout_.chosen[i]) * width + i] = 1;
  }

  void features(const std::string& name, std::vector<float>& to) const {
    size_t first = 0;
    for (const Port& in : original_.inputs) {
      if (in.name.starts_with("edge.")) continue;
      const size_t n = size(original_.values[size(in.value)].width);
      if (in.name == name)
        for (size_t r = 0; r < w_; ++r)
          for (size_t c = 0; c < n; ++c) to[c * w_ + r] = row(r).features[first + c];
      first += n;
    }
  }

  const LoweredProgram& p_;
  const LoweredFunction& f_;
  const Function& original_;
  const HostTables& tables_;
  const WindowLayout& layout_;
  const size_t w_;
};

}  // namespace

std::vector<NamedValues> window_inputs(const LoweredProgram& program, const LoweredFunction& function, const Function& original, const HostTables& tables, const WindowLayout& layout) {
  return Filler(program, function, original, tables, layout).run();
}

}  // namespace espalier::static_unit
