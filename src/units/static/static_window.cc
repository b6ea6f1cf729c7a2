// One window of a call on a static unit: its layout, its states, its answers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "units/static/static_model.h"

namespace espalier::static_unit {
namespace {

constexpr uint32_t kWantHead = kWantArgmax | kWantLogits | kWantTopK | kWantLse;

size_t size(int32_t n) { return static_cast<size_t>(n); }

const std::vector<float>* find(const std::vector<NamedValues>& values, const std::string& name) {
  for (const NamedValues& v : values)
    if (v.name == name) return &v.data;
  return nullptr;
}

}  // namespace

WindowLayout StaticModel::lay_out(const Job& job, const PlannedWindow& window) const {
  WindowLayout layout;
  layout.group = limits(job).group;
  std::vector<int32_t> part_of(job.states.size(), kNone), row_of(job.nodes.size(), kNone);
  int32_t column = 0;
  for (size_t p = 0; p < window.parts.size(); ++p) {
    const PlannedPart& part = window.parts[p];
    part_of[size(part.sequence)] = static_cast<int32_t>(p);
    const int32_t columns = job.reads ? job.states[size(part.sequence)]->written() + part.base : 0;
    layout.parts.push_back({column, columns, part.placed});
    column += columns + static_cast<int32_t>(part.placed.size());
  }
  for (size_t r = 0; r < window.rows.size(); ++r) row_of[size(window.rows[r])] = static_cast<int32_t>(r);
  for (int32_t node : window.rows) {
    const int32_t part = part_of[size(job.nodes[size(node)].sequence)];
    WindowRow row{part, &job.row(node), {}};
    for (int32_t n = node; n != kState && job.depth[size(n)] >= window.parts[size(part)].base; n = job.nodes[size(n)].parent) row.chain.push_back(row_of[size(n)]);
    layout.rows.push_back(std::move(row));
  }
  return layout;
}

// The smallest bucket, and the smallest form of the head that answers all fresh rows.
FunctionSpec StaticModel::choose_function(const Job& job, const PlannedWindow& window, int32_t columns, WindowLayout& layout) const {
  FunctionSpec spec{job.role, options_.rows, columns == 0 ? options_.buckets.front() : shape_.bucket_for(columns), HeadRows::none, HeadForm::maxima};
  for (size_t r = 0; r < window.rows.size() && !job.only_writes; ++r) {
    if (!window.fresh[r]) continue;
    const uint32_t wants = job.call->rows[size(layout.rows[r].row->call_row)].wants;
    if ((wants & kWantHead) == 0) continue;
    layout.chosen.push_back(static_cast<int32_t>(r));
    if (wants & (kWantHead & ~kWantArgmax)) spec.form = HeadForm::logits;
  }
  if (!layout.chosen.empty()) spec.head = static_cast<int32_t>(layout.chosen.size()) <= std::min(kChosenRows, options_.rows) ? HeadRows::chosen : HeadRows::all;
  return spec;
}

// One sequence lends its own columns; several are put side by side.
std::vector<std::vector<float>> StaticModel::load_states(const Job& job, const PlannedWindow& window, const WindowLayout& layout, int32_t bucket) const {
  std::vector<std::vector<float>> out(lowered_.states.size());
  const size_t frames = size(lowered_.frame_count), slots = static_cast<size_t>(kFrameSlots);
  const bool lends = window.parts.size() == 1 && job.reads;
  for (size_t s = 0; s < out.size(); ++s) {
    const LoweredState& decl = lowered_.states[s];
    const size_t channels = size(decl.channels), width = decl.is_kv ? size(bucket) : slots;
    if (!decl.is_kv || !lends) out[s].resize(channels * width);
    for (size_t p = 0; p < window.parts.size() && job.reads; ++p) {
      StaticState& state = *job.states[size(window.parts[p].sequence)];
      if (decl.is_kv && lends) {
        state.resize_columns(bucket);
        out[s] = std::move(state.kv()[s]);
      } else if (decl.is_kv) {
        for (size_t c = 0; c < channels; ++c)
          std::copy_n(state.kv()[s].data() + c * size(state.columns()), layout.parts[p].columns, out[s].data() + c * width + size(layout.parts[p].first_column));
      } else {
        const std::vector<float>& from = state.frames_at(window.parts[p].base)[s];
        for (size_t c = 0; c < channels; ++c) std::copy_n(from.data() + c * frames, frames, out[s].data() + c * width + p * frames);
      }
    }
  }
  return out;
}

// Frames behind the rows that a window placed: from the state that the function wrote, or (delta) from old frames and new ones.
FrameSet StaticModel::written_frames(const PlannedPart& part, size_t slot, const StaticState& state, const std::vector<std::vector<float>>& states, const std::vector<NamedValues>& outputs) const {
  FrameSet set(lowered_.states.size());
  const size_t frames = size(lowered_.frame_count), slots = static_cast<size_t>(kFrameSlots), window = size(options_.rows);
  for (size_t s = 0; s < set.size(); ++s) {
    if (lowered_.states[s].is_kv) continue;
    const size_t channels = size(lowered_.states[s].channels);
    set[s].resize(channels * frames);
    const std::vector<float>* fresh = options_.kv == KvForm::delta ? find(outputs, lowered_.states[s].name) : nullptr;
    const std::vector<float>& old = state.frames_at(part.base)[s];
    for (size_t c = 0; c < channels; ++c)
      for (size_t f = 0; f < frames; ++f) {
        const size_t at = f + part.placed.size();
        float& to = set[s][c * frames + f];
        if (options_.kv != KvForm::delta) to = states[s][c * slots + slot * frames + f];
        else to = at < frames ? old[c * frames + at] : (*fresh)[c * window + size(part.placed[at - frames])];
      }
  }
  return set;
}

void StaticModel::store_states(const Job& job, const PlannedWindow& window, const WindowLayout& layout, int32_t bucket, std::vector<std::vector<float>>&& states, const std::vector<NamedValues>& outputs) const {
  const size_t rows = size(options_.rows);
  for (size_t p = 0; p < window.parts.size(); ++p) {
    const PlannedPart& part = window.parts[p];
    StaticState& state = *job.states[size(part.sequence)];
    std::vector<int32_t> path;
    for (int32_t r : part.placed) path.push_back(window.rows[size(r)] - static_cast<int32_t>(job.first_node[size(part.sequence)]));
    const int32_t first = layout.parts[p].columns, needed = first + static_cast<int32_t>(part.placed.size());
    FrameSet frames = part.placed.empty() ? FrameSet() : written_frames(part, p, state, states, outputs);
    for (size_t s = 0; s < states.size() && window.parts.size() == 1; ++s)
      if (lowered_.states[s].is_kv) state.kv()[s] = std::move(states[s]);
    if (needed > state.columns()) state.resize_columns(shape_.bucket_for(needed));
    const bool own = window.parts.size() == 1 && options_.kv != KvForm::delta;
    for (size_t s = 0; s < states.size() && !own; ++s) {
      if (!lowered_.states[s].is_kv) continue;
      const std::vector<float>* fresh = options_.kv == KvForm::delta ? find(outputs, lowered_.states[s].name) : nullptr;
      for (size_t c = 0; c < size(lowered_.states[s].channels); ++c)
        for (size_t i = 0; i < part.placed.size(); ++i)
          state.kv()[s][c * size(state.columns()) + size(first) + i] =
              fresh != nullptr ? (*fresh)[c * rows + size(part.placed[i])] : states[s][c * size(bucket) + size(layout.parts[p].first_column + first) + i];
    }
    state.advance(part.base, path, std::move(frames));
  }
}

Status StaticModel::gather(const Job& job, const PlannedWindow& window, const WindowLayout& layout, const LoweredFunction& f, const std::vector<NamedValues>& outputs) const {
  const size_t rows = size(options_.rows);
  const size_t columns = f.spec.head == HeadRows::chosen ? static_cast<size_t>(std::min(kChosenRows, options_.rows)) : rows;
  for (size_t i = 0; i < layout.chosen.size(); ++i) {
    const size_t column = f.spec.head == HeadRows::chosen ? i : size(layout.chosen[i]);
    const int32_t call_row = layout.rows[size(layout.chosen[i])].row->call_row;
    if (f.spec.form == HeadForm::maxima) {
      const std::vector<float>&largest = *find(outputs, "head.max"), &index = *find(outputs, "head.index");
      size_t best = 0;
      bool is_number = true;
      for (size_t part = 0; part < largest.size() / columns; ++part) {
        is_number = is_number && !std::isnan(largest[part * columns + column]);
        if (largest[part * columns + column] > largest[best * columns + column]) best = part;
      }
      const float value = is_number ? largest[best * columns + column] : std::numeric_limits<float>::quiet_NaN();
      ESPALIER_TRY(job.answers->best(call_row, value, static_cast<int32_t>(best) * lowered_.subrange + static_cast<int32_t>(index[best * columns + column])));
      continue;
    }
    std::vector<float> logits;
    for (const std::vector<float>* part; (part = find(outputs, "logits." + std::to_string(logits.size() / size(lowered_.subrange)))) != nullptr;) {
      for (size_t v = 0; v < part->size() / columns; ++v) logits.push_back((*part)[v * columns + column]);
      if (logits.size() % size(lowered_.subrange) != 0) break;
    }
    ESPALIER_TRY(job.answers->logits(call_row, std::move(logits)));
  }
  for (size_t t = 0; t < job.call->out->taps.size(); ++t) {
    const std::vector<float>& values = *find(outputs, job.call->out->taps[t].name);
    for (size_t r = 0; r < window.rows.size(); ++r) {
      const int32_t call_row = layout.rows[r].row->call_row;
      if (!window.fresh[r] || (job.call->rows[size(call_row)].wants & kWantTaps) == 0) continue;
      std::vector<float> row(values.size() / rows);
      for (size_t c = 0; c < row.size(); ++c) row[c] = values[c * rows + r];
      job.answers->tap(t, call_row, std::move(row));
    }
  }
  return {};
}

Status StaticModel::run_window(Job& job, const PlannedWindow& window) {
  WindowLayout layout = lay_out(job, window);
  int32_t columns = 0;
  for (const WindowPart& part : layout.parts) columns += part.columns + (options_.kv == KvForm::dynamic ? options_.rows : static_cast<int32_t>(part.placed.size()));
  const FunctionSpec spec = choose_function(job, window, job.reads ? columns : 0, layout);
  const int32_t id = lowered_.find(spec);
  if (id == kNone) return {Code::internal, "the static unit has no function " + function_name(spec)};
  const LoweredFunction& f = lowered_.functions[size(id)];
  const std::vector<NamedValues> inputs = window_inputs(lowered_, f, *job.function, tables_, layout);
  std::vector<std::vector<float>> states = load_states(job, window, layout, spec.bucket);
  std::vector<NamedValues> outputs;
  const Status ran = backend_->run(id, inputs, states, outputs);
  PlannedWindow done = window;
  for (PlannedPart& part : done.parts)
    if (!ran.ok()) part.placed.clear();
  if (job.reads) store_states(job, done, layout, spec.bucket, std::move(states), outputs);
  ESPALIER_TRY(ran);
  return job.only_writes ? Status() : gather(job, window, layout, f, outputs);
}

}  // namespace espalier::static_unit
