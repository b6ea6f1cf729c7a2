// The artifact's container: a valid safetensors file, aligned and checksummed.
//
//   u64 header length | JSON header, padded with spaces to a multiple of 64 | tensors, each from a multiple of 64
//   | "__trailer__" (u8, the last tensor)
//
// Between tensors whose size is no multiple of 64 lie tensors "__pad_N__" (u8), so that strict readers see no hole.
// The trailer (little-endian): "ESPTRLR1" | u64 file size | u64 XXH3 of length field and header | u64 number of tensors n
// | n x u64 XXH3 of each tensor in file order, pads included | u64 XXH3 of the trailer so far.
//
// Writing   to "<path>.tmp-<pid>" beside the target; data in the order declared, then the header (whose metadata may be
//           known only at the end: space is reserved), then trailer, fsync, rename, fsync of the folder. Any failure, or
//           a writer destroyed before finish(), removes the temporary file; a process that dies leaves only that one,
//           which the next writer of the same target removes. Nothing half made ever has the target's name.
// Reading   parse_container checks structure, file size and header checksum (milliseconds); verify_container also all
//           tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "espalier/status.h"
#include "weights/file_lock.h"
#include "weights/safetensors.h"
#include "weights/tensor_view.h"

namespace espalier {

inline constexpr uint64_t kContainerAlign = 64;

struct ContainerTensor {
  std::string name;  // not beginning with "__"
  StorageType type = StorageType::u8;
  std::vector<uint64_t> shape;
};

class ContainerWriter {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;
  // The lock is on the final path and held until the writer ends. `metadata_bytes`: room for the metadata given to
  // finish (its JSON text). Reserves the disk space where the file system can, so that a full disk fails here.
  static Result<ContainerWriter> create(FileLock lock, std::vector<ContainerTensor> tensors, uint64_t metadata_bytes);

  ContainerWriter(ContainerWriter&&) noexcept;
  ContainerWriter& operator=(ContainerWriter&&) noexcept;
  ~ContainerWriter();

  // The next bytes of the tensors in the order declared; any cut. Pads are written by the writer.
  Status append(std::span<const std::byte> bytes);
  // Requires all tensors appended (else an error with both sizes). After it the file is there under its name.
  Status finish(const Metadata& metadata);

  uint64_t file_bytes() const;

 private:
  struct State;
  explicit ContainerWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct Container {
  std::vector<TensorView> tensors;  // without pads and trailer
  ContainerWriter::Metadata metadata;
  uint64_t header_bytes = 0;
};
// `file` must begin at a multiple of 64 (a mapped file does). Errors do not name the file; callers add it.
Result<Container> parse_container(std::span<const std::byte> file);
// parse_container and every checksum; the first tensor that differs is named.
Status verify_container(std::span<const std::byte> file);

}  // namespace espalier
