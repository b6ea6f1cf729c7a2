// A child process that answers frames: u64 bytes (little endian), then the body, both ways over its standard input and output.
//
// A dead or silent child is an error with the end of what it wrote to standard error, never a signal or a crash here.
// Threads    one exchange at a time. Ownership: the destructor ends the child's input, then the child.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "espalier/status.h"

namespace espalier {

class ChildProcess {
 public:
  // `name` is what errors call it; standard error goes to the file `log`.
  static Result<std::unique_ptr<ChildProcess>> start(std::string name, const std::vector<std::string>& command, const std::string& log);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  Status send(const std::vector<uint8_t>& body);
  Result<std::vector<uint8_t>> receive();

  // Runs a command to its end; not ok with the end of what it wrote to standard error where it does not exit with 0.
  static Status finish(std::string name, const std::vector<std::string>& command, const std::string& log);

 private:
  ChildProcess() = default;
  Status read_all(uint8_t* to, size_t bytes);
  // Why the child no longer answers. Waits for it.
  Status ended();
  int wait();

  std::string name_, log_;
  int socket_ = -1;
  int64_t pid_ = -1;
  int exit_ = 0;  // of waitpid, once pid_ is -1
};

}  // namespace espalier
