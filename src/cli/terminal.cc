#include "cli/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace espalier::cli {
namespace {

std::atomic<bool> interrupt_flag{false};
std::atomic<void (*)(void*)> interrupt_fn{nullptr};
std::atomic<void*> interrupt_context{nullptr};
std::string failure;
bool closed = false;

void handle_interrupt(int) {
  const int saved = errno;
  // The first one asks, the second one ends: whatever is stuck.
  if (interrupt_flag.exchange(true)) _exit(kExitInterrupted);
  if (void (*fn)(void*) = interrupt_fn.load()) fn(interrupt_context.load());
  errno = saved;
}

sigset_t interrupt_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void install_signals() {
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = handle_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: a read of stdin returns
}
void end_on_interrupt() { signal(SIGINT, SIG_DFL); }
HoldInterrupts::HoldInterrupts() {
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}
HoldInterrupts::~HoldInterrupts() {
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}
bool interrupted() {
  if (interrupt_flag.load()) return true;
  sigset_t waiting;
  return sigpending(&waiting) == 0 && sigismember(&waiting, SIGINT) == 1;
}
void clear_interrupt() { interrupt_flag.store(false); }

OnInterrupt::OnInterrupt(void (*fn)(void*), void* context) {
  interrupt_context.store(context);
  interrupt_fn.store(fn);
  if (interrupted()) fn(context);
}
OnInterrupt::~OnInterrupt() { interrupt_fn.store(nullptr); }

bool out(std::string_view text) {
  while (!text.empty() && !closed && failure.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EPIPE) {
      closed = true;
    } else if (errno != EINTR) {
      failure = std::string("stdout could not be written: ") + std::strerror(errno);
    }
  }
  return !closed && failure.empty();
}
bool out_closed() { return closed; }
std::string write_failure() { return failure; }

void err(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}
bool err_is_terminal() { return isatty(STDERR_FILENO) == 1; }
bool in_is_terminal() { return isatty(STDIN_FILENO) == 1; }

namespace {

// Text is held whole, so what never ends must be refused before it fills the memory.
constexpr size_t kInputBytesMax = size_t{1} << 30;

Status unreadable(const std::string& name, const std::string& why) { return {Code::io, name + " could not be read: " + why}; }

Status unreadable(const std::string& name) { return unreadable(name, std::strerror(errno)); }

Status too_long(const std::string& name) { return unreadable(name, "it has more than " + std::to_string(kInputBytesMax >> 20) + " MiB"); }

Result<std::string> read_all(int fd, const std::string& name) {
  std::string all;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n > 0) {
      if (all.size() + static_cast<size_t>(n) > kInputBytesMax) return too_long(name);
      all.append(buffer, static_cast<size_t>(n));
    } else if (n == 0) {
      return all;
    } else if (errno != EINTR) {
      return unreadable(name);
    } else if (interrupted()) {
      return Status(Code::cancelled, "interrupted");
    }
  }
}

}  // namespace

Result<std::string> read_all_input() { return read_all(STDIN_FILENO, "stdin"); }

Result<Line> read_line(std::string& line) {
  static std::string pending;
  line.clear();
  size_t seen = 0;
  for (;;) {
    const size_t end = pending.find('\n', seen);
    if (end != std::string::npos) {
      line = pending.substr(0, end);
      pending.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return Line::read;
    }
    seen = pending.size();
    if (seen > kInputBytesMax) return too_long("a line of stdin");
    char buffer[4096];
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n > 0) {
      pending.append(buffer, static_cast<size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      return Line::interrupted;
    } else if (n < 0) {
      return unreadable("stdin");
    } else {
      line.swap(pending);
      pending.clear();
      return line.empty() ? Line::end : Line::read;
    }
  }
}

Result<std::string> read_file(const std::string& path) {
  if (path == "-") return read_all_input();
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR && !interrupted());  // a pipe waits for its writer
  if (fd < 0 && errno == EINTR) return Status(Code::cancelled, "interrupted");
  if (fd < 0) return unreadable(path);
  auto text = read_all(fd, path);
  ::close(fd);
  return text;
}

void Progress::update(uint64_t done, uint64_t total) {
  if (quiet_) return;
  if (!err_is_terminal()) {
    if (!said_) err(what_ + "\n");
    said_ = true;
    return;
  }
  const int percent = total == 0 ? 100 : static_cast<int>(static_cast<double>(done) * 100.0 / static_cast<double>(total));
  if (percent == percent_) return;
  percent_ = percent;
  shown_ = true;
  std::string bar(static_cast<size_t>(percent / 4), '#');
  bar.resize(25, '.');
  err("\r" + what_ + " [" + bar + "] " + std::to_string(percent) + " %");
}

void Progress::clear() {
  if (!shown_) return;
  err("\r\x1b[K");
  shown_ = false;
  percent_ = -1;
}

}  // namespace espalier::cli
