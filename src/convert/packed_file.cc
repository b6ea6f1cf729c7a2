#include "convert/packed_file.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "weights/packed_words.h"

namespace espalier {
namespace {

using Metadata = std::span<const std::pair<std::string, std::string>>;

constexpr const char* kScaleNames[] = {"f16", "bf16", "f32"};

std::string hex(uint64_t h) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

std::string matrix_words(const PackedWeights::Entry& e) {
  const PackedForm& f = e.matrix.form;
  char digits[32];  // read back by from_chars, so written without the locale
  const std::string error(digits, std::to_chars(digits, digits + sizeof digits, e.error, std::chars_format::general, 4).ptr);
  return "rows " + std::to_string(f.rows) + " inputs " + std::to_string(f.cols) + " bits " + std::to_string(f.bits) + " group " +
         std::to_string(f.group) + " scale " + kScaleNames[static_cast<int>(f.scale_type)] + " offset " + (f.offset ? "yes" : "no") +
         " hadamard " + std::to_string(f.hadamard) + " exact " + (e.exact ? "yes" : "no") + " error " + error;
}

Result<PackedWeights::Entry> matrix_entry(const std::string& name, std::string_view words) {
  PackedWeights::Entry e;
  PackedForm& f = e.matrix.form;
  const auto number = [&](const char* key, uint32_t max) -> uint32_t {
    const auto v = packed_number(words, key);
    return v && *v <= max ? static_cast<uint32_t>(*v) : UINT32_MAX;
  };
  const uint32_t rows = number("rows", kPackedDimMax), cols = number("inputs", kPackedDimMax), bits = number("bits", 8), group = number("group", kGroupMax),
                 hadamard = number("hadamard", kHadamardBlock);
  const auto scale = std::find(std::begin(kScaleNames), std::end(kScaleNames), packed_word(words, "scale"));
  if (rows == UINT32_MAX || cols == UINT32_MAX || bits == UINT32_MAX || group == UINT32_MAX || hadamard == UINT32_MAX || scale == std::end(kScaleNames))
    return corrupt("the packed file's form of " + name + " is damaged: '" + std::string(words) + "'", name);
  f.rows = rows;
  f.cols = cols;
  f.bits = static_cast<uint8_t>(bits);
  f.group = static_cast<uint8_t>(group);
  f.scale_type = static_cast<ScaleType>(scale - std::begin(kScaleNames));
  f.offset = packed_word(words, "offset") == "yes";
  f.hadamard = static_cast<uint8_t>(hadamard);
  e.exact = packed_word(words, "exact") == "yes";
  const std::string_view error = packed_word(words, "error");
  std::from_chars(error.data(), error.data() + error.size(), e.error);
  return e;
}

const TensorView* find(std::span<const TensorView> tensors, const std::string& name) {
  for (const TensorView& t : tensors)
    if (t.name == name) return &t;
  return nullptr;
}

Result<PackedWeights::Entry> read_entry(const WeightDecl& decl, const TensorView& t, Metadata metadata, const std::shared_ptr<const void>& owner) {
  if (decl.kind != WeightDecl::Kind::matrix) {
    PackedWeights::Entry e;
    if (t.type != StorageType::f32 || t.data.size() != sizeof(float) * static_cast<size_t>(decl.rows) * static_cast<size_t>(decl.cols))
      return corrupt("the packed file's " + decl.name + ": expected " + std::to_string(int64_t{decl.rows} * decl.cols) + " of f32", decl.name);
    e.vector.resize(t.data.size() / sizeof(float));
    std::memcpy(e.vector.data(), t.data.data(), t.data.size());
    return e;
  }
  ESPALIER_ASSIGN(PackedWeights::Entry e, matrix_entry(decl.name, metadata_value(metadata, "matrix." + decl.name)));
  if (e.matrix.form.rows != static_cast<uint32_t>(decl.rows) || e.matrix.form.cols != static_cast<uint32_t>(decl.cols))
    return corrupt("the packed file's " + decl.name + ": expected (" + std::to_string(decl.rows) + ", " + std::to_string(decl.cols) + ")", decl.name);
  ESPALIER_ASSIGN(e.matrix, packed_view(e.matrix.form, reinterpret_cast<const uint8_t*>(t.data.data()), t.data.size(), owner));
  return e;
}

// Frequency divisors are a part of the program that comes from a tensor of GGUF files: kept under its name.
constexpr const char* kRopeDivisors = "rope_freqs.weight";
const std::vector<float>* rope_divisors(const Program& program) {
  for (const RopeSpec& r : program.ropes)
    if (!r.divisors.empty()) return &r.divisors;
  return nullptr;
}

struct Planned {
  std::vector<ContainerTensor> tensors;
  std::vector<PackedForm> forms;  // by WeightId
  uint64_t total = 0;
};

Result<Planned> plan_file(const Program& program, const WeightSet& weights, WeightsForm form) {
  Planned out;
  const std::vector<bool> tables = table_weights(program);
  out.forms.resize(program.weights.size());
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const WeightDecl& decl = program.weights[i];
    if (!decl.owner.empty()) continue;
    if (!weights.entries[i].matrix) {
      out.tensors.push_back({decl.name, StorageType::f32, {static_cast<uint64_t>(decl.rows), static_cast<uint64_t>(decl.cols)}});
      continue;
    }
    ESPALIER_ASSIGN(out.forms[i], packed_form(*weights.entries[i].matrix, form, tables[i]));
    out.tensors.push_back({decl.name, StorageType::u8, {packed_bytes(out.forms[i])}});
    out.total += packed_bytes(out.forms[i]);
  }
  if (const std::vector<float>* divisors = rope_divisors(program)) out.tensors.push_back({kRopeDivisors, StorageType::f32, {divisors->size()}});
  return out;
}

}  // namespace

const char* weights_form_name(WeightsForm form) {
  switch (form) {
    case WeightsForm::automatic: return "auto";
    case WeightsForm::int8: return "int8";
    case WeightsForm::int4: return "int4";
    case WeightsForm::file: return "file";
  }
  return "?";
}

std::string_view metadata_value(Metadata metadata, std::string_view key) {
  for (const auto& [k, v] : metadata)
    if (k == key) return v;
  return {};
}

Status write_packed(FileLock lock, const Program& program, const WeightSet& weights, WeightsForm form, const std::string& identity,
                    ThreadTeam& team, const PackProgress& progress) {
  ESPALIER_TRY(check_weights(program, weights, WeightScope::own));
  ESPALIER_ASSIGN(const Planned planned, plan_file(program, weights, form));
  ContainerWriter::Metadata metadata = {{"format", "espalier"}, {"espalier.format", kPackedFormat}, {"espalier.program", hex(program_hash(program))},
                                        {"espalier.weights", weights_form_name(form)}, {"espalier.source", identity}};
  constexpr uint64_t kWordsMax = 320;  // of one matrix, with its name's quotes
  uint64_t metadata_bytes = 4096 + 2 * identity.size();
  for (const WeightDecl& decl : program.weights) metadata_bytes += kWordsMax + decl.name.size();
  ESPALIER_ASSIGN(ContainerWriter writer, ContainerWriter::create(std::move(lock), planned.tensors, metadata_bytes));
  uint64_t done = 0;
  for (size_t i = 0; i < program.weights.size(); ++i) {
    if (!program.weights[i].owner.empty()) continue;
    if (!weights.entries[i].matrix) {
      ESPALIER_TRY(writer.append(std::as_bytes(std::span(weights.entries[i].vector))));
      continue;
    }
    ESPALIER_ASSIGN(const PackedWeights::Entry e, pack_matrix(*weights.entries[i].matrix, planned.forms[i], team));
    const size_t bytes = packed_bytes(e.matrix.form);
    ESPALIER_TRY(writer.append(std::as_bytes(std::span(e.matrix.data, bytes))));
    metadata.emplace_back("matrix." + program.weights[i].name, matrix_words(e));
    done += bytes;
    if (progress && !progress(done, planned.total)) return {Code::cancelled, "packing the weights was cancelled"};
  }
  if (const std::vector<float>* divisors = rope_divisors(program)) ESPALIER_TRY(writer.append(std::as_bytes(std::span(*divisors))));
  return writer.finish(metadata);
}

Result<PackedWeights> read_packed(const Program& program, std::span<const TensorView> tensors, Metadata metadata, std::shared_ptr<const void> owner) {
  const std::string_view format = metadata_value(metadata, "espalier.format");
  if (format != kPackedFormat)
    return unsupported("the packed file has format '" + std::string(format) + "', this build reads " + kPackedFormat + ": convert the model again");
  if (metadata_value(metadata, "espalier.program") != hex(program_hash(program)))
    return corrupt("the packed file was made for another program: convert the model again");
  PackedWeights out;
  for (const WeightDecl& decl : program.weights) {
    if (!decl.owner.empty()) {
      out.entries.emplace_back();
      continue;
    }
    const TensorView* t = find(tensors, decl.name);
    if (t == nullptr) return corrupt("the packed file lacks " + decl.name, decl.name);
    ESPALIER_ASSIGN(PackedWeights::Entry e, read_entry(decl, *t, metadata, owner));
    out.entries.push_back(std::move(e));
  }
  return out;
}

}  // namespace espalier
