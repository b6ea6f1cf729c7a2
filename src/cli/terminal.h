// stdout for answers, stderr for everything else; Ctrl-C and closed pipes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "espalier/status.h"

namespace espalier::cli {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitInterrupted = 130, kExitPipeClosed = 141;

// From now on Ctrl-C sets a flag (a second one ends the process), and a closed pipe is an error of write.
void install_signals();
// For commands that never look at the flag: Ctrl-C ends the process at once.
void end_on_interrupt();
// While it lives, Ctrl-C waits; threads made meanwhile never take it, so that handlers run on this thread alone.
class HoldInterrupts {
 public:
  HoldInterrupts();
  ~HoldInterrupts();
  HoldInterrupts(const HoldInterrupts&) = delete;
  HoldInterrupts& operator=(const HoldInterrupts&) = delete;
};
bool interrupted();  // one that waits counts
void clear_interrupt();
// Runs `fn` on Ctrl-C while the object lives; must be safe in a signal handler. A second Ctrl-C that finds no such object, or
// the flag still set, ends the process.
class OnInterrupt {
 public:
  explicit OnInterrupt(void (*fn)(void*), void* context);
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;
};

// Writes all of it at once (unbuffered). False: nobody reads any more, or the disk is full (write_failure says).
bool out(std::string_view text);
bool out_closed();
std::string write_failure();  // empty: none, or a closed pipe

void err(std::string_view text);
bool err_is_terminal();
bool in_is_terminal();

// Everything on stdin. The status names what failed.
Result<std::string> read_all_input();
// One line without its end; nothing at the end of input or when a signal interrupted the wait.
enum class Line { read, end, interrupted };
Result<Line> read_line(std::string& line);
Result<std::string> read_file(const std::string& path);  // "-" is stdin

// "packing weights  43 %" on a terminal; elsewhere one line at the start. Nothing when quiet.
class Progress {
 public:
  Progress(std::string what, bool quiet) : what_(std::move(what)), quiet_(quiet) {}
  ~Progress() { clear(); }
  void update(uint64_t done, uint64_t total);
  void clear();  // takes the line away, so that other text can be written

 private:
  std::string what_;
  bool quiet_;
  bool said_ = false;
  bool shown_ = false;
  int percent_ = -1;
};

}  // namespace espalier::cli
