#include "units/cpu/call_runner.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace espalier::cpu {
namespace {

constexpr uint32_t kConvChannels = 256;   // channels of a piece
constexpr size_t kThreadScratchAlign = 64;

// What one thread does in a nanosecond, roughly: bytes of weights read from a cache, multiply-adds of int8 and of fp32.
constexpr double kByteRate = 20, kIntegerRate = 200, kFloatRate = 40;
constexpr double kPhaseNs = 20e3;

Status no_scratch(size_t bytes) { return {Code::out_of_memory, "the system refused " + std::to_string(bytes) + " bytes of scratch for a call"}; }

// Rows of a piece: enough pieces for all threads, few enough to keep the counter quiet.
uint32_t row_grain(uint32_t rows, uint32_t threads) { return std::max(1u, rows / (threads * 4)); }

}  // namespace

CallRunner::CallRunner(CpuModel& model, const Schedule& schedule, const Call& call)
    : m_(model), schedule_(schedule), call_(call), function_(*schedule.function), threads_(choose_threads()),
      counters_(schedule.phases.size() * 2) {}

// The result does not depend on it. On a quiet machine two threads take as long as one where a phase is shorter than kPhaseNs;
// on a busy one each barrier may wait for a time slice of somebody else.
uint32_t CallRunner::choose_threads() const {
  const uint32_t all = m_.team_->size();
  if (all == 1) return 1;
  const double rows = static_cast<double>(call_.rows.size());
  double asking = 0, held = 0;
  for (const Row& r : call_.rows) {
    asking += (r.wants & kHeadAsks) != 0 ? 1 : 0;
    held += static_cast<double>(call_.states[static_cast<size_t>(r.sequence)]->length());
  }
  double ns = 0;
  for (const Phase& phase : schedule_.phases) {
    if (phase.kind == Phase::Kind::attend) {
      const AttentionAttr& a = std::get<AttentionAttr>(phase.op->attr);
      ns += (held + rows * rows) * a.n_heads * a.head_dim * 2 / kFloatRate;
    }
    const auto product = [&](WeightId w, double n) {
      if (n == 0) return;
      const PackedMatrix& m = matrix(w);
      ns += std::max(static_cast<double>(packed_bytes(m.form)) / kByteRate, n * m.form.rows * m.form.cols / kIntegerRate);
    };
    if (phase.kind == Phase::Kind::head) product(phase.op->weights[0], asking);
    for (const LinearJob& job : phase.linears) product(job.op->weights[0], rows);
  }
  return ns < kPhaseNs * static_cast<double>(schedule_.phases.size()) ? 1 : all;
}

Status CallRunner::run() {
  call_.out->clear();
  bind_rows();
  bind_taps();
  ESPALIER_TRY(reserve());
  ESPALIER_TRY(plan_attention());
  conv_frames_.resize(schedule_.phases.size());
  for (size_t i = 0; i < conv_frames_.size(); ++i)
    if (schedule_.phases[i].kind == Phase::Kind::conv) conv_frames_[i] = conv_frames(*schedule_.phases[i].op);
  load_inputs();
  if (n_rows() > 0 && threads_ > 1) m_.team_->run([&](uint32_t thread) { run_phases(thread); });
  if (n_rows() > 0 && threads_ == 1) run_phases(0);
  copy_edges();
  return failure_;
}

void CallRunner::bind_rows() {
  slot_.resize(n_rows());
  pages_.resize(call_.states.size());
  for (size_t s = 0; s < call_.states.size(); ++s) {
    auto* st = static_cast<CpuState*>(call_.states[s]);
    const auto entries = st->rows.entries();
    for (size_t e = 0; e < entries.size(); ++e) slot_[static_cast<size_t>(entries[e].call_row)] = static_cast<uint32_t>(e);
    pages_[s] = {st->held_pages.data(), st->fresh_pages.data()};
  }
}

void CallRunner::bind_taps() {
  tap_row_.resize(n_rows(), kNone);
  int32_t count = 0;
  for (uint32_t r = 0; r < n_rows(); ++r)
    if (call_.rows[r].wants & kWantTaps) tap_row_[r] = count++;
  for (NamedOutput& out : call_.out->taps) {
    for (size_t p = 0; p < function_.outputs.size(); ++p) {
      const Port& port = function_.outputs[p];
      if (port.name != out.name || (schedule_.segment != kNone && port.segment != schedule_.segment)) continue;
      out.data.resize(static_cast<size_t>(count) * width(port.value));
      taps_.push_back({&out, static_cast<int32_t>(p)});
    }
  }
}

Status CallRunner::reserve() {
  Scratch& s = m_.scratch_;
  const auto grow = [](Buffer& b, size_t bytes) { return b.reserve(bytes) ? Status() : no_scratch(bytes); };
  if (s.slots.size() < schedule_.memory.slot_width.size()) s.slots.resize(schedule_.memory.slot_width.size());
  for (size_t i = 0; i < schedule_.memory.slot_width.size(); ++i)
    ESPALIER_TRY(grow(s.slots[i], n_rows() * static_cast<size_t>(schedule_.memory.slot_width[i]) * sizeof(float)));
  // Sets of one linear phase live together; those of different phases share memory.
  sets_.resize(schedule_.sets.size());
  for (const Phase& phase : schedule_.phases) {
    std::vector<int32_t> used;
    for (const LinearJob& job : phase.linears)
      if (std::find(used.begin(), used.end(), job.set) == used.end()) used.push_back(job.set);
    if (s.sets.size() < used.size()) s.sets.resize(used.size());
    for (size_t i = 0; i < used.size(); ++i) {
      const PackedForm& form = schedule_.sets[static_cast<size_t>(used[i])].form;
      ESPALIER_TRY(grow(s.sets[i], quantized_bytes(n_rows(), form.cols, form.group)));
    }
  }
  for (const Phase& phase : schedule_.phases) {  // after all growth: views point into the buffers
    std::vector<int32_t> used;
    for (const LinearJob& job : phase.linears) {
      if (std::find(used.begin(), used.end(), job.set) != used.end()) continue;
      const PackedForm& form = schedule_.sets[static_cast<size_t>(job.set)].form;
      sets_[static_cast<size_t>(job.set)] = quantized_view(s.sets[used.size()].bytes(), n_rows(), form, m_.linear_plan_.tile_rows(n_rows(), form));
      used.push_back(job.set);
    }
  }
  size_t rope_floats = 0;
  for (const RopeTable& table : m_.ropes_) rope_floats += n_rows() * static_cast<size_t>(table.head_dim());
  ESPALIER_TRY(grow(s.rope, rope_floats * sizeof(float)));
  float* rope = s.rope.floats();
  for (size_t t = 0; t < m_.ropes_.size(); ++t) {
    rope_rows_.push_back(rope);
    const size_t width = m_.ropes_[t].head_dim();
    for (uint32_t r = 0; r < n_rows(); ++r, rope += width) m_.copy_rope_row(t, call_.rows[r].position, rope);
  }
  return reserve_head();
}

Status CallRunner::plan_attention() {
  size_t scratch = linear_scratch_bytes(n_rows()), partials = 0;
  scratch = std::max(scratch, linear_scratch_bytes(kHeadRowsMax));
  std::vector<AttentionRowIn> rows;
  std::vector<uint32_t> held;
  for (const Row& r : call_.rows) rows.push_back({static_cast<uint32_t>(r.sequence), r.position, r.parent});
  for (const State* s : call_.states) held.push_back(static_cast<uint32_t>(s->length()));
  for (const Phase& phase : schedule_.phases) {
    if (phase.kind != Phase::Kind::attend) continue;
    const AttentionAttr& a = std::get<AttentionAttr>(phase.op->attr);
    const AttentionShape shape{static_cast<uint32_t>(a.n_heads), static_cast<uint32_t>(a.n_kv_heads), static_cast<uint32_t>(a.head_dim), a.mask == MaskKind::group};
    const auto same = [&](const AttentionShape& o) {
      return o.n_heads == shape.n_heads && o.n_kv_heads == shape.n_kv_heads && o.head_dim == shape.head_dim && o.group == shape.group;
    };
    if (std::any_of(attention_shapes_.begin(), attention_shapes_.end(), same)) continue;
    ESPALIER_ASSIGN(AttentionPlan plan, make_attention_plan(shape, rows, held, threads_));
    scratch = std::max(scratch, plan.scratch_bytes);
    partials = std::max(partials, plan.partial_floats);
    attention_shapes_.push_back(shape);
    attention_plans_.push_back(std::move(plan));
  }
  if (m_.scratch_.threads.size() < threads_) m_.scratch_.threads.resize(threads_);
  for (Buffer& b : m_.scratch_.threads)
    if (!b.reserve(scratch + kThreadScratchAlign)) return no_scratch(scratch);
  if (!m_.scratch_.partials.reserve(partials * sizeof(float))) return no_scratch(partials * sizeof(float));
  return {};
}

void CallRunner::load_inputs() {
  for (const Port& in : function_.inputs) {
    if (schedule_.segment != kNone && in.segment != schedule_.segment) continue;
    if (schedule_.memory.slot[static_cast<size_t>(in.value)] == kNone) continue;
    for (const NamedTensor& t : call_.inputs)
      if (t.name == in.name) std::memcpy(at(in.value), t.data, n_rows() * width(in.value) * sizeof(float));
  }
}

void CallRunner::run_phases(uint32_t thread) {
  for (size_t i = 0; i < schedule_.phases.size(); ++i) {
    const Phase& phase = schedule_.phases[i];
    switch (phase.kind) {
      case Phase::Kind::rows:
        ThreadTeam::share(counters_[2 * i], n_rows(), row_grain(n_rows(), threads_), thread,
                          [&](uint32_t begin, uint32_t end, uint32_t) { run_rows(phase, begin, end); });
        break;
      case Phase::Kind::linear: {
        const int64_t t0 = thread == 0 ? now_ns() : 0;
        run_linears(phase, counters_[2 * i], thread);
        barrier();
        if (thread == 0) linear_ns_ += now_ns() - t0;
        continue;
      }
      case Phase::Kind::conv:
        run_conv(i, counters_[2 * i], thread);
        break;
      case Phase::Kind::attend: run_attention(*phase.op, counters_[2 * i], counters_[2 * i + 1], thread); break;
      case Phase::Kind::head: run_head(*phase.op, thread); break;
    }
    barrier();
  }
}

void CallRunner::run_rows(const Phase& phase, uint32_t begin, uint32_t end) {
  for (const RowOp& op : phase.row_ops) run_row_op(op, begin, end);
}

void CallRunner::run_row_op(const RowOp& r, uint32_t begin, uint32_t end) {
  const uint32_t n = end - begin;
  switch (r.kind) {
    case RowOpKind::embed:
      for (uint32_t i = begin; i < end; ++i) embed_row(matrix(r.op->weights[0]), static_cast<uint32_t>(call_.rows[i].token), row(r.op->out[0], i));
      break;
    case RowOpKind::norm: norm(*r.op, begin, end); break;
    case RowOpKind::rope: rope(*r.op, begin, end); break;
    case RowOpKind::keep: keep(*r.op, begin, end); break;
    case RowOpKind::swiglu: {
      const size_t w = width(r.op->in[0]);
      m_.kernels_.swiglu({row(r.op->in[0], begin), w, row(r.op->in[1], begin), w, row(r.op->out[0], begin), w, n, static_cast<uint32_t>(w)});
      break;
    }
    case RowOpKind::add: {
      const size_t w = width(r.op->in[0]);
      m_.kernels_.add({row(r.op->in[0], begin), w, row(r.op->in[1], begin), w, row(r.op->out[0], begin), w, n, static_cast<uint32_t>(w)});
      break;
    }
    case RowOpKind::quantise:
      m_.kernels_.quantize({at(r.value), width(r.value), &sets_[static_cast<size_t>(r.index)], begin, end});
      break;
    case RowOpKind::tap: copy_tap(r, begin, end); break;
  }
}

void CallRunner::norm(const Op& op, uint32_t begin, uint32_t end) {
  const size_t w = width(op.in[0]);
  RmsNormArgs args{};
  args.src = row(op.in[0], begin);
  args.src_stride = w;
  args.gain = vector(op.weights[0]);
  args.dst = row(op.out[0], begin);
  args.dst_stride = w;
  args.n_rows = end - begin;
  args.dim = static_cast<uint32_t>(w);
  args.eps = std::get<RmsNormAttr>(op.attr).eps;
  m_.kernels_.rms_norm(args);
}

void CallRunner::rope(const Op& op, uint32_t begin, uint32_t end) {
  const QkNormRopeAttr& a = std::get<QkNormRopeAttr>(op.attr);
  const RopeTable& table = m_.ropes_[static_cast<size_t>(a.rope)];
  for (size_t i = 0; i < 2; ++i) {
    if (op.in[i] == kNone) continue;
    const size_t w = width(op.in[i]);
    const uint32_t heads = static_cast<uint32_t>(i == 0 ? a.n_heads : a.n_kv_heads);
    const float* rope_rows = rope_rows_[static_cast<size_t>(a.rope)] + begin * static_cast<size_t>(a.head_dim);
    m_.kernels_.qk_norm_rope({row(op.in[i], begin), w, row(op.out[i], begin), w, rope_rows, vector(op.weights[i]), a.eps,
                              i == 0 ? a.q_scale : 1.0f, table.interleaved(), end - begin, heads, static_cast<uint32_t>(a.head_dim)});
  }
}

void CallRunner::keep(const Op& op, uint32_t begin, uint32_t end) {
  const AttentionAttr& a = std::get<AttentionAttr>(op.attr);
  const size_t s = static_cast<size_t>(op.state);
  const KvLayout& layout = m_.layout_.kv[s];
  for (uint32_t r = begin; r < end; ++r) {
    CpuState& st = state(r);
    std::byte* page = st.fresh_pages[slot_[r] / kKvPagePositions] + m_.layout_.offset[s];
    for (int32_t h = 0; h < a.n_kv_heads; ++h)
      kv_store(layout, page + static_cast<size_t>(h) * layout.bytes, slot_[r] % kKvPagePositions, row(op.in[1], r) + h * a.head_dim, row(op.in[2], r) + h * a.head_dim);
  }
}

void CallRunner::copy_tap(const RowOp& op, uint32_t begin, uint32_t end) {
  const size_t w = width(op.value);
  for (const Tap& tap : taps_) {
    if (tap.port != op.index) continue;
    for (uint32_t r = begin; r < end; ++r)
      if (tap_row_[r] != kNone) std::memcpy(tap.out->data.data() + static_cast<size_t>(tap_row_[r]) * w, row(op.value, r), w * sizeof(float));
  }
}

void CallRunner::run_linears(const Phase& phase, std::atomic<uint32_t>& next, uint32_t thread) {
  uint32_t total = 0;
  for (const LinearJob& job : phase.linears) total += panel_count(matrix(job.op->weights[0]).form);
  const uint32_t grain = std::max(1u, total / (threads_ * 16));
  ThreadTeam::share(next, total, grain, thread, [&](uint32_t begin, uint32_t end, uint32_t) {
    uint32_t base = 0;
    for (const LinearJob& job : phase.linears) {
      const PackedMatrix& w = matrix(job.op->weights[0]);
      const uint32_t panels = panel_count(w.form), first = std::max(begin, base), last = std::min(end, base + panels);
      if (first < last) {
        LinearArgs args{};
        args.weights = &w;
        args.rows = &sets_[static_cast<size_t>(job.set)];
        args.panel_begin = first - base;
        args.panel_end = last - base;
        args.dst = at(job.out);
        args.dst_stride = width(job.out);
        args.bias = vector(job.op->weights[1]);
        args.residual = job.residual == kNone ? nullptr : at(job.residual);
        args.residual_stride = job.residual == kNone ? 0 : width(job.residual);
        args.scratch = m_.scratch_.threads[thread].bytes();
        args.plan = &m_.linear_plan_;
        m_.kernels_.linear(args);
      }
      base += panels;
    }
  });
}

// For each row and tap the frame that the tap reads: an earlier row's u, or a frame that the state holds.
std::vector<const float*> CallRunner::conv_frames(const Op& op) const {
  const size_t taps = static_cast<size_t>(std::get<ShortConvAttr>(op.attr).kernel), w = width(op.out[0]), s = static_cast<size_t>(op.state);
  std::vector<const float*> out(n_rows() * taps);
  for (uint32_t r = 0; r < n_rows(); ++r) {
    const CpuState& st = state(r);
    const float* u = st.call_frames->memory.floats() + m_.layout_.offset[s] * st.call_frames->rows;
    const float* held = st.frames[s].data() + st.frames[s].size();  // one past the newest frame
    int32_t path_row = static_cast<int32_t>(r);
    for (size_t back = 0; back < taps; ++back) {
      const float*& frame = out[r * taps + (taps - 1 - back)];
      if (path_row == kState) {
        frame = held -= w;
        continue;
      }
      frame = u + static_cast<size_t>(path_row) * w;
      path_row = call_.rows[static_cast<size_t>(path_row)].parent;
    }
  }
  return out;
}

void CallRunner::run_conv(size_t phase, std::atomic<uint32_t>& next, uint32_t thread) {
  const Op& op = *schedule_.phases[phase].op;
  const size_t w = width(op.out[0]);
  const ShortConvAttr& a = std::get<ShortConvAttr>(op.attr);
  const CallFrames& frames = *state(0).call_frames;
  ShortConvArgs args{};
  args.b = at(op.in[0]);
  args.g = args.b + w;
  args.x = args.b + 2 * w;
  args.src_stride = 3 * w;
  args.u = const_cast<float*>(frames.memory.floats()) + m_.layout_.offset[static_cast<size_t>(op.state)] * frames.rows;
  args.u_stride = w;
  args.frames = conv_frames_[phase].data();
  args.kernel = m_.conv_kernels_[static_cast<size_t>(op.weights[0])].data();
  args.bias = vector(op.weights[1]);
  args.dst = at(op.out[0]);
  args.dst_stride = w;
  args.n_rows = n_rows();
  args.dim = static_cast<uint32_t>(w);
  args.taps = static_cast<uint32_t>(a.kernel);
  ThreadTeam::share(next, static_cast<uint32_t>(w), kConvChannels, thread, [&](uint32_t begin, uint32_t end, uint32_t) {
    ShortConvArgs piece = args;
    piece.channel_begin = begin;
    piece.channel_end = end;
    m_.kernels_.short_conv(piece);
  });
}

void CallRunner::run_attention(const Op& op, std::atomic<uint32_t>& next, std::atomic<uint32_t>& next_merge, uint32_t thread) {
  const AttentionAttr& a = std::get<AttentionAttr>(op.attr);
  size_t which = 0;
  while (attention_shapes_[which].n_heads != static_cast<uint32_t>(a.n_heads) || attention_shapes_[which].n_kv_heads != static_cast<uint32_t>(a.n_kv_heads) ||
         attention_shapes_[which].head_dim != static_cast<uint32_t>(a.head_dim) || attention_shapes_[which].group != (a.mask == MaskKind::group))
    ++which;
  const AttentionPlan& plan = attention_plans_[which];
  const size_t s = static_cast<size_t>(op.state);
  AttentionArgs args{};
  args.layout = m_.layout_.kv[s];
  args.shape = attention_shapes_[which];
  args.q = at(op.in[0]);
  args.q_stride = width(op.in[0]);
  args.dst = at(op.out[0]);
  args.dst_stride = width(op.out[0]);
  args.sequences = pages_.data();
  args.held_offset = args.fresh_offset = m_.layout_.offset[s];
  args.rows = plan.rows.data();
  args.runs = plan.runs.data();
  args.partials = m_.scratch_.partials.floats();
  void* scratch = m_.scratch_.threads[thread].bytes();
  const auto run_items = [&](const std::vector<AttentionItem>& items, std::atomic<uint32_t>& counter) {
    ThreadTeam::share(counter, static_cast<uint32_t>(items.size()), 1, thread, [&](uint32_t begin, uint32_t end, uint32_t) {
      for (uint32_t i = begin; i < end; ++i) m_.kernels_.attention(args, items[i], scratch);
    });
  };
  run_items(plan.items, next);
  if (plan.merges.empty()) return;
  barrier();
  run_items(plan.merges, next_merge);
}

void CallRunner::copy_edges() {
  if (schedule_.segment == kNone) return;
  for (const Port& port : function_.outputs) {
    if (port.segment != schedule_.segment || !port.name.starts_with("edge.")) continue;
    const float* from = at(port.value);
    call_.out->edges.push_back({port.name, std::vector<float>(from, from + n_rows() * width(port.value))});
  }
}

}  // namespace espalier::cpu
