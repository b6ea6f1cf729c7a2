#include "units/static/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

extern char** environ;

namespace espalier {
namespace {

constexpr size_t kLogBytes = 2000;       // of the child's last words
constexpr uint64_t kFrameBytes = 1ull << 36;

std::string end_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  const std::streamoff from = size > static_cast<std::streamoff>(kLogBytes) ? size - static_cast<std::streamoff>(kLogBytes) : 0;
  file.seekg(from);
  std::string text(static_cast<size_t>(size - from), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string how(int status) {
  if (WIFSIGNALED(status)) return std::string("was ended by signal ") + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(std::string name, const std::vector<std::string>& command, const std::string& log) {
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->name_ = std::move(name);
  child->log_ = log;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return Status(Code::io, child->name_ + ": no sockets for it: " + std::strerror(errno));
  child->socket_ = ends[0];
  ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  ::fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  std::vector<char*> arguments;
  for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) return Status(Code::not_found, child->name_ + ": " + command[0] + " can't be started: " + std::strerror(failed));
  child->pid_ = pid;
  return child;
}

ChildProcess::~ChildProcess() {
  if (socket_ >= 0) ::close(socket_);
  if (pid_ < 0) return;
  ::kill(static_cast<pid_t>(pid_), SIGKILL);
  wait();
}

int ChildProcess::wait() {
  while (pid_ >= 0) {
    if (::waitpid(static_cast<pid_t>(pid_), &exit_, 0) < 0 && errno == EINTR) continue;
    pid_ = -1;
  }
  return exit_;
}

Status ChildProcess::ended() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  const std::string words = end_of(log_);
  return {Code::internal, name_ + " " + how(wait()) + (words.empty() ? "" : "; its last words: " + words)};
}

Status ChildProcess::send(const std::vector<uint8_t>& body) {
  if (socket_ < 0) return ended();
  uint8_t head[8];
  for (int i = 0; i < 8; ++i) head[i] = static_cast<uint8_t>(static_cast<uint64_t>(body.size()) >> (8 * i));
  const std::pair<const uint8_t*, size_t> parts[] = {{head, sizeof head}, {body.data(), body.size()}};
  for (auto [from, left] : parts)
    while (left > 0) {
      const ssize_t n = ::send(socket_, from, left, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return ended();
      from += n;
      left -= static_cast<size_t>(n);
    }
  return {};
}

Status ChildProcess::read_all(uint8_t* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::read(socket_, to, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ended();
    to += n;
    bytes -= static_cast<size_t>(n);
  }
  return {};
}

Result<std::vector<uint8_t>> ChildProcess::receive() {
  if (socket_ < 0) return ended();
  uint8_t head[8];
  ESPALIER_TRY(read_all(head, sizeof head));
  uint64_t bytes = 0;
  for (int i = 0; i < 8; ++i) bytes |= static_cast<uint64_t>(head[i]) << (8 * i);
  if (bytes > kFrameBytes) return corrupt(name_ + " answers with a frame of " + std::to_string(bytes) + " bytes");
  std::vector<uint8_t> body;
  // Grows with what comes: a wrong length asks for no memory.
  for (size_t at = 0; at < bytes;) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(bytes - at, 1 << 24));
    body.resize(at + part);
    ESPALIER_TRY(read_all(body.data() + at, part));
    at += part;
  }
  return body;
}

Status ChildProcess::finish(std::string name, const std::vector<std::string>& command, const std::string& log) {
  ESPALIER_ASSIGN(const std::unique_ptr<ChildProcess> child, start(std::move(name), command, log));
  const int status = child->wait();
  if (status == 0) return {};
  const std::string words = end_of(log);
  return unsupported(words.empty() ? child->name_ + " " + how(status) : words);
}

}  // namespace espalier
