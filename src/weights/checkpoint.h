// A model as people have it: a Hugging Face or MLX folder, a .gguf file, a packed folder, or a folder with a tokenizer only.
//
// Owns the mapped files; everything that it hands out points into it. Immutable after open, thread-safe, move-only.
// Opening reads headers and small files only. Nothing in a folder is ever executed. Refused by name: tensor types that
// are not read, mixtures of experts, vision projectors, adapters, symbolic links (but those of a hub cache's own
// snapshot folder into its blobs).
//
// Names     A leading "language_model." is dropped, and "model.language_model." becomes "model.": both are wrappers
//           of tools that also hold a vision part.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_map.h"
#include "base/value.h"
#include "espalier/status.h"
#include "weights/source_matrix.h"
#include "weights/tensor_view.h"

namespace espalier {

enum class CheckpointKind { hf, mlx, gguf, packed, tokenizer_only, memory, npu };
// packed: for the CPU's kernels; npu: int8 with one scale for each row (docs/artifact.md). Both are folders with model.espalier.
inline bool is_converted(CheckpointKind kind) { return kind == CheckpointKind::packed || kind == CheckpointKind::npu; }
inline constexpr const char* kNpuFormat = "1";
inline constexpr const char* kRowScaleSuffix = ".scale";  // npu: behind a matrix's name
const char* name_of(CheckpointKind kind);

struct TemplateFile {
  std::string name;  // "default", or what the file calls it ("tool_use")
  std::string text;
  std::string source;  // where it was found, for messages: "chat_template.jinja"
};

// A file that holds weights or decides about them.
struct SourceFile {
  std::string name;  // inside the folder
  std::string path;
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  std::span<const std::byte> contents;
  std::span<const std::byte> header;  // what precedes the tensors; all of a small file
};

// Everything a checkpoint is made of; tests and programs without files fill it by hand.
struct CheckpointParts {
  CheckpointKind kind = CheckpointKind::memory;
  std::string path;
  Value config;             // config.json; GGUF: the metadata (flat keys); packed: config.json, which may hold such metadata
  Value generation_config;  // generation_config.json; GGUF: temperature, top_k, ..., eos_token_id from its keys; or null
  Value tokenizer;          // tokenizer.json; null where the config is GGUF metadata, which holds the tokenizer
  Value tokenizer_config;   // tokenizer_config.json or null
  std::vector<TemplateFile> chat_templates;
  std::vector<TensorView> tensors;
  std::vector<std::pair<std::string, std::string>> container_metadata;  // packed: of its safetensors container
  std::vector<SourceFile> files;
  std::vector<std::string> attribution_files;  // paths of licence and notice files, to go with a converted copy
  std::vector<std::string> notices;            // sentences for the user
  std::vector<FileMap> maps;
  std::vector<std::unique_ptr<std::vector<std::byte>>> buffers;  // backing of tensors that lie in no file
};

class Checkpoint {
 public:
  // Defined in checkpoint_open.cc (needs JSON); everything else here needs no library.
  static Result<Checkpoint> open(const std::string& path);
  // A folder of which only the tokenizer is used (weights may be absent), or a .gguf.
  static Result<Checkpoint> open_tokenizer_only(const std::string& path);
  // Normalises names, sorts the tensors, refuses two of one name.
  static Result<Checkpoint> make(CheckpointParts parts);

  CheckpointKind kind() const { return parts_.kind; }
  const std::string& path() const { return parts_.path; }
  const Value& config() const { return parts_.config; }
  const Value& generation_config() const { return parts_.generation_config; }
  // tokenizer.json, or GGUF metadata (has_gguf_metadata()), or null.
  const Value& tokenizer() const { return parts_.tokenizer.is_null() && has_gguf_metadata() ? parts_.config : parts_.tokenizer; }
  bool has_gguf_metadata() const;  // config() is GGUF metadata: a .gguf file, or an artifact made from one
  const Value& tokenizer_config() const { return parts_.tokenizer_config; }
  // The text of the template called "default"; empty if there is none (chat is then refused, never guessed).
  const std::string& chat_template() const;
  std::span<const TemplateFile> chat_templates() const { return parts_.chat_templates; }
  std::span<const SourceFile> files() const { return parts_.files; }
  std::span<const std::pair<std::string, std::string>> container_metadata() const { return parts_.container_metadata; }
  std::span<const std::string> attribution_files() const { return parts_.attribution_files; }
  std::span<const std::string> notices() const { return parts_.notices; }

  std::span<const TensorView> tensors() const { return parts_.tensors; }  // sorted by name
  const TensorView* find(std::string_view name) const;

  // A weight matrix by the name of its weight ("model.layers.0.feed_forward.w1.weight", "blk.0.ffn_gate.weight").
  // A module is MLX-quantised exactly when "<module>.scales" exists; bits and group come from the config's
  // quantization, with its per-module overrides. Missing tensors and wrong shapes are named.
  Result<SourceMatrix> matrix(const std::string& weight_name, uint64_t rows, uint64_t cols) const;
  // (rows, cols) of a weight matrix as `matrix` would accept it; for shapes that come from the file (vocabulary rows).
  Result<std::pair<uint64_t, uint64_t>> matrix_shape(const std::string& weight_name) const;
  Result<std::vector<float>> vector(const std::string& name, uint64_t size) const;
  // Values of a small float tensor; dimensions of size 1 are ignored, so that (H, 1, L) and (H, L, 1) are both (H, L).
  Result<std::vector<float>> floats(const std::string& name, std::span<const uint64_t> shape) const;

  // Tensors that nothing claims: not in `claimed`, nor scales and biases of a claimed weight. Sorted.
  std::vector<std::string> unclaimed(std::span<const std::string> claimed) const;

 private:
  struct Affine {
    uint32_t bits, group;
  };
  Result<Affine> affine_of(const std::string& module) const;
  const TensorView* scales_of(std::string_view weight_name) const;
  Result<AffineTensors> affine_tensors(const std::string& weight_name, const TensorView& weight) const;
  Status missing(const std::string& name) const;

  CheckpointParts parts_;
};

// Identity of the source: an array of {"name", "size", "mtime_ns", "header_sha256"}, one for each of files(), in order.
Value source_identity(const Checkpoint& checkpoint);
// SHA-256 of the whole of each of files(): [{"name", "sha256"}]. Reads everything (5 s for 2.7 GB).
Value content_hashes(const Checkpoint& checkpoint);

}  // namespace espalier
