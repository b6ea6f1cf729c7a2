// An exclusive lock between processes on a path that is being made: flock on "<path>.lock", which is removed on release.
// Freed by the kernel when the holder dies. Move-only.
#pragma once

#include <optional>
#include <string>

#include "espalier/status.h"

namespace espalier {

class FileLock {
 public:
  // Waits for another holder to finish. Look again whether `path` exists once you have the lock.
  static Result<FileLock> acquire(const std::string& path);
  // Nothing if somebody holds it.
  static Result<std::optional<FileLock>> try_acquire(const std::string& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  const std::string& path() const { return path_; }  // what is locked, without ".lock"

 private:
  FileLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  static Result<std::optional<FileLock>> lock(const std::string& path, bool wait);
  void release();

  std::string path_;
  int fd_ = -1;
};

}  // namespace espalier
