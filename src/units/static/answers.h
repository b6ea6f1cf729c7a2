// Collects what rows answer, in whatever order windows give them, and writes a call's Outputs in row order.
#pragma once

#include <vector>

#include "program/call.h"

namespace espalier::static_unit {

class Answers {
 public:
  explicit Answers(const Call& call) : call_(call), rows_(call.rows.size()), taps_(call.out->taps.size(), std::vector<std::vector<float>>(call.rows.size())) {}

  // A row's largest logit over sub-ranges, and its id. Not finite: an error that names the position.
  Status best(int32_t row, float largest, int32_t id);
  // All logits of a row, moved in. Checked likewise.
  Status logits(int32_t row, std::vector<float>&& logits);
  void tap(size_t index, int32_t row, std::vector<float>&& values) { taps_[index][static_cast<size_t>(row)] = std::move(values); }
  void write();

 private:
  struct Row {
    int32_t argmax = 0;
    float lse = 0;
    std::vector<TopEntry> top;
    std::vector<float> logits;
  };
  Status not_finite(int32_t row) const;
  std::vector<TopEntry> top(const std::vector<float>& logits) const;

  const Call& call_;
  std::vector<Row> rows_;
  std::vector<std::vector<std::vector<float>>> taps_;  // by tap and row
};

}  // namespace espalier::static_unit
