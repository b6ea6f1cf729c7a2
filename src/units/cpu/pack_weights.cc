#include "units/cpu/pack_weights.h"

#include <atomic>
#include <cmath>
#include <mutex>

#include "kernels/linear/pack.h"

namespace espalier {
namespace {

ScaleType scale_type(StorageType type) {
  if (type == StorageType::f16) return ScaleType::f16;
  return type == StorageType::bf16 ? ScaleType::bf16 : ScaleType::f32;
}

class SourceFloats : public FloatRows {
 public:
  explicit SourceFloats(const SourceMatrix& m) : m_(m) {}
  Status read(uint32_t row, std::span<float> dst) const override {
    m_.dequantize(row, 1, dst.data());
    return {};
  }

 private:
  const SourceMatrix& m_;
};

// Symmetric codes are moved so that their zero is the packed form's; codes with an offset stay.
class SourceCodes : public CodedRows {
 public:
  SourceCodes(const SourceMatrix& m, uint32_t packed_bits)
      : m_(m), shift_(m.form().has_offset ? 0 : (packed_bits == 8 ? 128 : 8) - static_cast<int>(m.form().zero)) {}
  Status read(uint32_t row, const CodedRow& dst) const override {
    m_.codes(row, dst.codes.data(), dst.scales.data(), dst.offsets.empty() ? nullptr : dst.offsets.data());
    if (shift_ != 0)
      for (uint8_t& c : dst.codes) c = static_cast<uint8_t>(c + shift_);
    return {};
  }

 private:
  const SourceMatrix& m_;
  int shift_;
};

PackedForm geometry(const SourceMatrix& source) {
  PackedForm form;
  form.rows = static_cast<uint32_t>(source.rows());
  form.cols = static_cast<uint32_t>(source.cols());
  return form;
}

PackedForm own_form(const SourceMatrix& source) {
  const MatrixForm& from = source.form();
  PackedForm form = geometry(source);
  form.bits = from.bits <= 4 ? 4 : 8;
  form.group = static_cast<uint8_t>(from.group);
  form.scale_type = scale_type(from.scale_type);
  form.offset = from.has_offset;
  return form;
}

PackedForm quantised_form(const SourceMatrix& source, uint8_t bits, uint8_t group, bool rotate) {
  PackedForm form = geometry(source);
  form.bits = bits;
  form.group = group;
  form.hadamard = rotate && form.cols % kHadamardBlock == 0 ? kHadamardBlock : 0;
  return form;
}

bool keeps_codes(const SourceMatrix& source, const PackedForm& form) {
  return source.form().kind == MatrixForm::Kind::codes && form == own_form(source);
}

}  // namespace

std::vector<bool> table_weights(const Program& program) {
  std::vector<bool> out(program.weights.size());
  for (const Function& f : program.functions)
    for (const Op& op : f.ops)
      if (op.kind() == OpKind::embed || op.kind() == OpKind::head) out[static_cast<size_t>(op.weights[0])] = true;
  return out;
}

uint64_t PackedWeights::matrix_bytes() const {
  uint64_t sum = 0;
  for (const Entry& e : entries)
    if (e.matrix.data != nullptr) sum += packed_bytes(e.matrix.form);
  return sum;
}

Result<PackedForm> packed_form(const SourceMatrix& source, WeightsForm form, bool is_table) {
  using Kind = MatrixForm::Kind;
  if (source.rows() > kPackedDimMax || source.cols() > kPackedDimMax)
    return unsupported("weight " + source.name() + ": (" + std::to_string(source.rows()) + ", " + std::to_string(source.cols()) + ") is too large");
  const Kind kind = source.form().kind;
  if (form == WeightsForm::file && kind == Kind::floats)
    return invalid("weight " + source.name() + " holds " + source.form().text() + ", and --weights file keeps the file's own quantisation: use auto, int8 or int4", "weights");
  if (form == WeightsForm::int8) return quantised_form(source, 8, 128, true);
  if (form == WeightsForm::int4) return is_table ? quantised_form(source, 8, 128, true) : quantised_form(source, 4, 32, true);
  if (kind == Kind::codes) return own_form(source);
  if (kind == Kind::opaque) return quantised_form(source, 8, 32, false);
  return quantised_form(source, 8, 128, true);
}

Result<PackedWeights::Entry> pack_matrix(const SourceMatrix& source, const PackedForm& form, ThreadTeam& team) {
  ESPALIER_TRY(validate(form));
  ESPALIER_ASSIGN(PackTarget target, allocate_packed(form));
  const bool exact = keeps_codes(source, form);
  const SourceCodes codes(source, form.bits);
  const SourceFloats floats(source);
  std::vector<PackError> errors(panel_count(form));
  std::mutex mutex;
  Status first_failure;
  team.parallel_for(panel_count(form), 1, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (uint32_t p = begin; p < end; ++p) {
      Status s = exact ? pack_panels(codes, target, p, p + 1) : pack_panels(floats, target, p, p + 1, &errors[p]);
      if (s.ok()) continue;
      const std::lock_guard lock(mutex);
      if (first_failure.ok()) first_failure = std::move(s).with_context("weight " + source.name());
    }
  });
  ESPALIER_TRY(first_failure);
  PackedWeights::Entry entry;
  PackError total;
  for (const PackError& e : errors) total.add(e);
  entry.exact = exact;
  entry.error = exact ? 0 : total.relative_rms();
  entry.matrix = finish(std::move(target));
  return entry;
}

Result<PackedWeights> pack_weights(const Program& program, const WeightSet& weights, const PackOptions& options, ThreadTeam& team,
                                   const PackProgress& progress) {
  ESPALIER_TRY(check_weights(program, weights, WeightScope::own));
  const std::vector<bool> is_table = table_weights(program);
  std::vector<PackedForm> forms(weights.entries.size());
  uint64_t total = 0, done = 0;
  for (size_t i = 0; i < forms.size(); ++i) {
    if (!weights.entries[i].matrix) continue;
    ESPALIER_ASSIGN(forms[i], packed_form(*weights.entries[i].matrix, options.form, is_table[i]));
    total += packed_bytes(forms[i]);
  }
  PackedWeights out;
  out.entries.resize(weights.entries.size());
  for (size_t i = 0; i < forms.size(); ++i) {
    if (!weights.entries[i].matrix) {
      out.entries[i].vector = weights.entries[i].vector;
      continue;
    }
    ESPALIER_ASSIGN(out.entries[i], pack_matrix(*weights.entries[i].matrix, forms[i], team));
    done += packed_bytes(forms[i]);
    if (progress && !progress(done, total)) return Status(Code::cancelled, "packing the weights was cancelled");
  }
  return out;
}

Status share_packed(const Program& program, const Program& target, const PackedWeights& target_weights, PackedWeights& weights) {
  ESPALIER_ASSIGN(const std::vector<WeightId> ids, target_weight_ids(program, target));
  if (weights.entries.size() != ids.size() || target_weights.entries.size() != target.weights.size())
    return invalid("the packed weights are not those of the two programs");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] != kNone) weights.entries[i] = target_weights.entries[static_cast<size_t>(ids[i])];
  return {};
}

Result<WeightSet> dequantized(const Program& program, const PackedWeights& weights) {
  WeightSet set;
  set.entries.resize(weights.entries.size());
  for (size_t i = 0; i < weights.entries.size(); ++i) {
    const PackedWeights::Entry& entry = weights.entries[i];
    if (entry.matrix.data == nullptr) {
      set.entries[i].vector = entry.vector;
      continue;
    }
    const uint64_t rows = entry.matrix.form.rows, cols = entry.matrix.form.cols;
    auto values = std::make_shared<std::vector<float>>(rows * cols);
    for (uint64_t r = 0; r < rows; ++r) embed_row(entry.matrix, static_cast<uint32_t>(r), values->data() + r * cols);
    TensorView view;
    view.name = program.weights[i].name;
    view.type = StorageType::f32;
    view.shape = {rows, cols};
    view.data = std::as_bytes(std::span<const float>(*values));
    ESPALIER_ASSIGN(set.entries[i].matrix, SourceMatrix::make(view, rows, cols));
    set.owners.push_back(std::move(values));
  }
  return set;
}

}  // namespace espalier
