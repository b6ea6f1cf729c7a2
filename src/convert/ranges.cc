#include "convert/ranges.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "units/static/static_unit.h"

namespace espalier {
namespace {

constexpr int32_t kWindow = 64;
constexpr float kMaskLike = kMasked / 2;  // a score that a mask was added to
constexpr size_t kRowsAtOnce = 64;

}  // namespace

void RangeHistogram::add(std::span<const float> values) {
  values_ += static_cast<int64_t>(values.size());
  for (const float x : values) {
    const float size = std::fabs(x);
    if (size == 0 || !std::isfinite(size)) continue;
    ++counts_[static_cast<size_t>(std::clamp(std::ilogb(size), kLowest, kHighest) - kLowest)];
    largest_ = std::max(largest_, size);
  }
}

void RangeHistogram::merge(const RangeHistogram& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  values_ += other.values_;
  largest_ = std::max(largest_, other.largest_);
}

int32_t RangeHistogram::top() const { return largest_ == 0 ? kLowest - 1 : std::clamp(std::ilogb(largest_), kLowest, kHighest); }

int64_t RangeHistogram::between(int32_t from, int32_t to) const {
  int64_t n = 0;
  for (int32_t e = std::max(from, kLowest); e < std::min(to, kHighest + 1); ++e) n += counts_[static_cast<size_t>(e - kLowest)];
  return n;
}
int64_t RangeHistogram::at_least(int32_t exponent, int32_t shift) const { return between(exponent - shift, kHighest + 1); }
int64_t RangeHistogram::below(int32_t exponent, int32_t shift) const { return between(kLowest, exponent - shift); }
int64_t RangeHistogram::notable_below(int32_t exponent, int32_t shift, int32_t octaves) const { return between(top() - octaves, exponent - shift); }
int64_t RangeHistogram::notable(int32_t octaves) const { return between(top() - octaves, kHighest + 1); }

namespace {

// The quantities of a lowered program: one for each primitive of an op, whatever functions it stands in.
class Observer {
 public:
  Observer(const Program& program, const Scaling& scaling) : program_(program), scaling_(scaling) {}

  void prepare(const LoweredProgram& lowered) {
    std::map<std::pair<int32_t, std::string>, size_t> known;
    for (const LoweredFunction& f : lowered.functions) {
      const std::vector<PartExponents> exponents = lowered_exponents(scaling_, program_, lowered, f);
      std::map<int32_t, std::map<std::string, int32_t>> ordinals;
      std::vector<size_t> places(f.ops.size(), kNowhere);
      for (size_t i = 0; i < f.ops.size(); ++i) {
        const PrimitiveOp& op = f.ops[i];
        // Parts are counted where they are cut out; what only moves numbers is counted where they were made.
        if (op.out == kNone || f.values[static_cast<size_t>(op.out)].type != ScalarType::f16 || exponents[static_cast<size_t>(op.out)].size() != 1 || moves(op, exponents)) continue;
        const std::string name = std::string(op.name()) + " " + std::to_string(ordinals[op.source][op.name()]++);
        const auto [at, is_new] = known.try_emplace({op.source, name}, quantities_.size());
        if (is_new) quantities_.push_back({kind_of(op, exponents), op.source, name, exponents[static_cast<size_t>(op.out)][0], {}});
        places[i] = at->second;
      }
      places_.push_back(std::move(places));
    }
  }

  void see(int32_t function, size_t op, std::span<const float> values) {
    const size_t at = places_[static_cast<size_t>(function)][op];
    if (at == kNowhere) return;
    RangeHistogram& range = quantities_[at].range;
    if (std::none_of(values.begin(), values.end(), [](float x) { return x < kMaskLike; })) return range.add(values);
    for (const float x : values)
      if (x >= kMaskLike) range.add(x);
  }

  std::vector<RangedQuantity> finish() { return std::move(quantities_); }

 private:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  static bool moves(const PrimitiveOp& op, const std::vector<PartExponents>& exponents) {
    switch (op.kind) {
      case Primitive::weight: case Primitive::read_state: case Primitive::reshape: case Primitive::transpose: case Primitive::concat: case Primitive::update_block: return true;
      case Primitive::slice: return exponents[static_cast<size_t>(op.in[0])].size() == 1;
      default: return false;
    }
  }
  static RangedQuantity::Kind kind_of(const PrimitiveOp& op, const std::vector<PartExponents>& exponents) {
    const bool follows = op.kind == Primitive::literal && !exponents[static_cast<size_t>(op.out)][0].terms().empty();
    return follows ? RangedQuantity::Kind::epsilon : RangedQuantity::Kind::activation;
  }

  const Program& program_;
  const Scaling& scaling_;
  std::vector<RangedQuantity> quantities_;
  std::vector<std::vector<size_t>> places_;  // by function and op
};

Status run_text(Model& model, std::span<const int32_t> ids, const std::function<Status(int64_t)>& step) {
  ESPALIER_ASSIGN(const std::unique_ptr<State> state, model.make_state());
  State* const states[] = {state.get()};
  Outputs out;
  for (size_t begin = 0; begin < ids.size(); begin += kWindow) {
    const size_t n = std::min<size_t>(kWindow, ids.size() - begin);
    std::vector<Row> rows;
    for (size_t i = 0; i < n; ++i) rows.push_back({ids[begin + i], 0, static_cast<int32_t>(begin + i), i == 0 ? kState : static_cast<int32_t>(i) - 1, kWantArgmax});
    ESPALIER_ASSIGN([[maybe_unused]] const CallStats stats, model.run({{Role::step, kNone}, rows, states, {}, 0, &out}));
    std::vector<int32_t> path(n);
    std::iota(path.begin(), path.end(), 0);
    ESPALIER_TRY(state->commit(path));
    ESPALIER_TRY(step(static_cast<int64_t>(n)));
  }
  return {};
}

}  // namespace

Result<std::vector<RangedQuantity>> measure_ranges(const Program& program, const WeightSet& weights, const Scaling& scaling, const CalibrationText& text, uint32_t threads, const CalibrationProgress& progress) {
  size_t longest = 0;
  int64_t total = 0, done = 0;
  for (const std::vector<int32_t>& ids : text.texts) {
    longest = std::max(longest, ids.size());
    total += static_cast<int64_t>(ids.size());
  }
  if (longest == 0) return invalid(text.name + ": expected a text to measure ranges on, found none", "calibrate");
  StaticOptions options;
  options.buckets = {static_cast<int32_t>((longest + kWindow) / kWindow * kWindow + kWindow)};
  Observer observer(program, scaling);
  options.evaluate = {Arithmetic::f32, 0, threads, false, [&](int32_t function, size_t op, std::span<const float> values) { observer.see(function, op, values); }};
  ESPALIER_ASSIGN(const std::unique_ptr<Unit> unit, make_static_unit(options));
  ESPALIER_ASSIGN(const std::unique_ptr<Model> model, unit->compile(program, weights));
  observer.prepare(*static_lowered(*model));
  for (const std::vector<int32_t>& ids : text.texts)
    ESPALIER_TRY(run_text(*model, ids, [&](int64_t rows) {
      done += rows;
      return progress && !progress(done, total) ? Status(Code::cancelled, "measuring the ranges was cancelled") : Status();
    }));
  return observer.finish();
}

std::vector<RangedQuantity> weight_ranges(const Program& program, const WeightSet& weights, const Scaling& scaling) {
  std::vector<RangedQuantity> out;
  for (size_t w = 0; w < program.weights.size(); ++w) {
    const WeightDecl& decl = program.weights[w];
    const PartExponents& parts = scaling.weights[w];
    const std::optional<SourceMatrix>& matrix = weights.entries[w].matrix;
    const size_t rows = static_cast<size_t>(decl.rows), cols = static_cast<size_t>(decl.cols);
    for (size_t p = 0; p < parts.size(); ++p) {
      RangedQuantity q{matrix ? RangedQuantity::Kind::row_scale : RangedQuantity::Kind::vector, kNone, decl.name, parts[p], {}};
      if (!matrix) {
        const size_t n = weights.entries[w].vector.size() / parts.size();
        q.range.add(std::span(weights.entries[w].vector).subspan(p * n, n));
      }
      std::vector<float> block(kRowsAtOnce * cols);
      const size_t end = rows / parts.size() * (p + 1);
      for (size_t r = rows / parts.size() * p; matrix && r < end; r += kRowsAtOnce) {
        const size_t n = std::min(kRowsAtOnce, end - r);
        matrix->dequantize(r, n, block.data());
        for (size_t i = 0; i < n; ++i) {
          float largest = 0;
          for (size_t c = 0; c < cols; ++c) largest = std::max(largest, std::fabs(block[i * cols + c]));
          q.range.add(largest / 127.0f);
        }
      }
      out.push_back(std::move(q));
    }
  }
  return out;
}

}  // namespace espalier
