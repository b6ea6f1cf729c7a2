// The head of a call: logits for the rows that ask, and what they want from them.
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "units/cpu/call_runner.h"

namespace espalier::cpu {
Status CallRunner::reserve_head() {
  for (uint32_t r = 0; r < n_rows(); ++r)
    if (call_.rows[r].wants & kHeadAsks) asking_.push_back(r);
  const auto head = std::find_if(schedule_.phases.begin(), schedule_.phases.end(), [](const Phase& p) { return p.kind == Phase::Kind::head; });
  if (head == schedule_.phases.end()) {
    asking_.clear();
    return {};
  }
  const PackedForm& form = matrix(head->op->weights[0]).form;
  const size_t n = std::min<size_t>(asking_.size(), kHeadRowsMax);
  Scratch& s = m_.scratch_;
  // Copies of the asking rows stand in front of their quantised form.
  const size_t copy = (n * form.cols * sizeof(float) + 63) / 64 * 64;
  if (!s.head_sets.reserve(copy + quantized_bytes(static_cast<uint32_t>(n), form.cols, form.group)) || !s.logits.reserve(n * form.rows * sizeof(float)))
    return {Code::out_of_memory, "the system refused " + std::to_string(n * form.rows * sizeof(float)) + " bytes for logits"};
  parts_.resize(n);
  top_.resize(n);
  head_counters_ = std::vector<std::atomic<uint32_t>>(2 * ((asking_.size() + kHeadRowsMax - 1) / kHeadRowsMax));
  return {};
}

std::span<const uint32_t> CallRunner::head_block(size_t block) const {
  const size_t begin = block * kHeadRowsMax;
  return std::span(asking_).subspan(begin, std::min<size_t>(kHeadRowsMax, asking_.size() - begin));
}

void CallRunner::run_head(const Op& op, uint32_t thread) {
  const PackedMatrix& table = matrix(op.weights[0]);
  const uint32_t panels = panel_count(table.form), grain = std::max(1u, panels / (threads_ * 16));
  for (size_t block = 0; block * kHeadRowsMax < asking_.size(); ++block) {
    if (thread == 0) quantise_block(op, block);
    barrier();
    const int64_t t0 = thread == 0 ? now_ns() : 0;
    ThreadTeam::share(head_counters_[2 * block], panels, grain, thread, [&](uint32_t begin, uint32_t end, uint32_t) {
      LinearArgs args{};
      args.weights = &table;
      args.rows = &head_rows_;
      args.panel_begin = begin;
      args.panel_end = end;
      args.dst = m_.scratch_.logits.floats();
      args.dst_stride = table.form.rows;
      args.scratch = m_.scratch_.threads[thread].bytes();
      args.plan = &m_.linear_plan_;
      m_.kernels_.linear(args);
    });
    barrier();
    if (thread == 0) linear_ns_ += now_ns() - t0;
    ThreadTeam::share(head_counters_[2 * block + 1], static_cast<uint32_t>(head_block(block).size()), 1, thread,
                      [&](uint32_t begin, uint32_t end, uint32_t) {
                        for (uint32_t i = begin; i < end; ++i) scan_row(block, i);
                      });
    barrier();
    if (thread == 0) emit_block(block);
  }
}

void CallRunner::quantise_block(const Op& op, size_t block) {
  const std::span<const uint32_t> rows = head_block(block);
  const PackedForm& form = matrix(op.weights[0]).form;
  const uint32_t n = static_cast<uint32_t>(rows.size());
  float* copy = m_.scratch_.head_sets.floats();
  for (uint32_t i = 0; i < n; ++i) std::memcpy(copy + i * size_t{form.cols}, row(op.in[0], rows[i]), form.cols * sizeof(float));
  std::byte* memory = m_.scratch_.head_sets.bytes() + (n * size_t{form.cols} * sizeof(float) + 63) / 64 * 64;
  head_rows_ = quantized_view(memory, n, form, m_.linear_plan_.tile_rows(n, form));
  m_.kernels_.quantize({copy, form.cols, &head_rows_, 0, n});
}

void CallRunner::scan_row(size_t block, uint32_t i) {
  const uint32_t vocabulary = static_cast<uint32_t>(m_.program_.vocabulary);
  const float* logits = m_.scratch_.logits.floats() + i * size_t{vocabulary};
  const uint32_t wants = call_.rows[head_block(block)[i]].wants;
  std::vector<HeadPart> parts((vocabulary + kHeadBlock - 1) / kHeadBlock);
  m_.kernels_.head_scan({logits, 0, vocabulary, (wants & kWantLse) != 0, parts.data()});
  parts_[i] = merge_parts(parts);
  if ((wants & kWantTopK) == 0 || parts_[i].non_finite_id >= 0) return;
  top_[i].resize(std::min(call_.top_k, vocabulary));
  top_k({logits, vocabulary}, 0, call_.top_k, top_[i]);
}

void CallRunner::emit_block(size_t block) {
  const std::span<const uint32_t> rows = head_block(block);
  const size_t vocabulary = static_cast<size_t>(m_.program_.vocabulary);
  Outputs& out = *call_.out;
  for (size_t i = 0; i < rows.size() && failure_.ok(); ++i) {
    const Row& r = call_.rows[rows[i]];
    if (parts_[i].non_finite_id >= 0) {
      failure_ = {Code::internal, "position " + std::to_string(r.position) + ": the logit of token " + std::to_string(parts_[i].non_finite_id) +
                                      " is not finite; the weights or the state are damaged"};
      return;
    }
    const float* logits = m_.scratch_.logits.floats() + i * vocabulary;
    if (r.wants & kWantArgmax) out.argmax.push_back(parts_[i].max_id);
    if (r.wants & kWantLogits) out.logits.insert(out.logits.end(), logits, logits + vocabulary);
    if (r.wants & kWantLse) out.lse.push_back(log_sum_exp(parts_[i]));
    if (r.wants & kWantTopK) out.top.insert(out.top.end(), top_[i].begin(), top_[i].end());
  }
}

}  // namespace espalier::cpu
