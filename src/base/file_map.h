// A regular file mapped read-only. RAII; move-only; the bytes stay valid until the map is destroyed.
//
// The file must not shrink while it is mapped: reading past its new end would raise SIGBUS (the artifact is never
// rewritten in place, only replaced by rename, so that its readers are safe). Thread-safe after open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "espalier/status.h"

namespace espalier {

class FileMap {
 public:
  enum class Access { normal, sequential, random };

  FileMap() = default;
  // Fails with not_found or io and a sentence that begins with the path; directories, FIFOs, sockets and devices are
  // refused before they are opened for reading (a FIFO would block). An empty file maps to no bytes.
  static Result<FileMap> open(const std::string& path);

  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  ~FileMap();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  int64_t mtime_ns() const { return mtime_ns_; }  // of the open file, not of what the path names by now

  // Hints; failures are ignored, since results do not depend on them.
  void advise(Access access) const;
  void populate(uint64_t offset, uint64_t length) const;  // reads the pages in; returns when they are there
  void drop(uint64_t offset, uint64_t length) const;      // lets go of whole pages inside the range

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  int64_t mtime_ns_ = 0;
};

}  // namespace espalier
