#include "base/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#ifndef MADV_POPULATE_READ  // Linux 5.14; older headers do not name it
#define MADV_POPULATE_READ 22
#endif

namespace espalier {
namespace {

Status io_failure(const std::string& path, const char* doing) {
  const int error = errno;
  const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found : Code::io;
  return {code, path + ": cannot be " + doing + ": " + std::strerror(error)};
}

Status refuse_special(const std::string& path, const struct stat& st) {
  if (S_ISREG(st.st_mode)) return {};
  const char* what = S_ISDIR(st.st_mode)    ? "a folder"
                     : S_ISFIFO(st.st_mode) ? "a named pipe"
                     : S_ISSOCK(st.st_mode) ? "a socket"
                                            : "a device";
  return invalid(path + ": expected a regular file, found " + what);
}

int64_t mtime_of(const struct stat& st) {
#ifdef __APPLE__
  return int64_t{st.st_mtimespec.tv_sec} * 1'000'000'000 + st.st_mtimespec.tv_nsec;
#else
  return int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
#endif
}

uint64_t page_size() {
  static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

Result<FileMap> FileMap::open(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return io_failure(path, "opened");
  ESPALIER_TRY(refuse_special(path, st));
  // Non-blocking, and looked at again: the name may have become a pipe since.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return io_failure(path, "opened");
  if (::fstat(fd, &st) != 0) {
    Status failed = io_failure(path, "examined");
    ::close(fd);
    return failed;
  }
  if (Status special = refuse_special(path, st); !special.ok()) {
    ::close(fd);
    return special;
  }
  FileMap map;
  map.path_ = path;
  map.size_ = static_cast<uint64_t>(st.st_size);
  map.mtime_ns_ = mtime_of(st);
  if (map.size_ != 0) {
    void* data = ::mmap(nullptr, static_cast<size_t>(map.size_), PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      Status failed = io_failure(path, "mapped");
      ::close(fd);
      map.size_ = 0;
      return failed;
    }
    map.data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
  return map;
}

FileMap::FileMap(FileMap&& other) noexcept { *this = std::move(other); }

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mtime_ns_, other.mtime_ns_);
  return *this;
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

void FileMap::advise(Access access) const {
  if (data_ == nullptr) return;
  const int advice = access == Access::sequential ? MADV_SEQUENTIAL : access == Access::random ? MADV_RANDOM : MADV_NORMAL;
  ::madvise(const_cast<std::byte*>(data_), static_cast<size_t>(size_), advice);
}

void FileMap::populate(uint64_t offset, uint64_t length) const {
  if (offset >= size_) return;
  const uint64_t begin = offset / page_size() * page_size();
  const uint64_t end = offset + std::min(length, size_ - offset);
  std::byte* first = const_cast<std::byte*>(data_) + begin;
  if (::madvise(first, static_cast<size_t>(end - begin), MADV_POPULATE_READ) == 0) return;
  ::madvise(first, static_cast<size_t>(end - begin), MADV_WILLNEED);
  for (uint64_t at = begin; at < end; at += page_size())
    static_cast<void>(*static_cast<const volatile std::byte*>(data_ + at));
}

void FileMap::drop(uint64_t offset, uint64_t length) const {
  if (offset >= size_) return;
  const uint64_t begin = (offset + page_size() - 1) / page_size() * page_size();
  const uint64_t end = (offset + std::min(length, size_ - offset)) / page_size() * page_size();
  if (begin < end)
    ::madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace espalier
