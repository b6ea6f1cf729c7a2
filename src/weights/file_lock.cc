#include "weights/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace espalier {
namespace {

std::string lock_path(const std::string& path) { return path + ".lock"; }

// The holder removes the file when it is done, so a lock won on a file that has no name any more locks nothing.
bool still_named(int fd, const std::string& name) {
  struct stat held, named;
  return ::fstat(fd, &held) == 0 && ::lstat(name.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

int flock_again(int fd, int operation) {
  int rc;
  do rc = ::flock(fd, operation);
  while (rc != 0 && errno == EINTR);
  return rc;
}

}  // namespace

Result<std::optional<FileLock>> FileLock::lock(const std::string& path, bool wait) {
  const std::string name = lock_path(path);
  for (;;) {
    const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return Status(Code::io, name + ": cannot be made: " + std::strerror(errno));
    if (flock_again(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
      const int error = errno;
      ::close(fd);
      if (error == EWOULDBLOCK) return std::optional<FileLock>();
      return Status(Code::io, name + ": cannot be locked: " + std::strerror(error));
    }
    if (still_named(fd, name)) return std::optional<FileLock>(FileLock(path, fd));
    ::close(fd);
  }
}

Result<FileLock> FileLock::acquire(const std::string& path) {
  Result<std::optional<FileLock>> held = lock(path, true);
  if (!held.ok()) return std::move(held).status();
  return std::move(**held);
}

Result<std::optional<FileLock>> FileLock::try_acquire(const std::string& path) { return lock(path, false); }

FileLock::FileLock(FileLock&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this != &other) {
    release();
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

FileLock::~FileLock() { release(); }

void FileLock::release() {
  if (fd_ < 0) return;
  ::unlink(lock_path(path_).c_str());  // while it is locked: a waiter then finds that its file has no name
  flock_again(fd_, LOCK_UN);               // a child made by fork may still hold a copy of the descriptor
  ::close(fd_);
  fd_ = -1;
}

}  // namespace espalier
