// How an answer looks while it comes, and what is said of it at the end.
#pragma once

#include <string>

#include "espalier/engine.h"

namespace espalier::cli {

// Text goes to stdout, reasoning to stderr (not when quiet), a call to stdout as one line of JSON.
class StreamPrinter {
 public:
  explicit StreamPrinter(bool quiet) : quiet_(quiet) {}
  // False: nobody reads stdout any more.
  bool print(const Delta& delta);
  // Ends the last line.
  void end();

 private:
  bool quiet_;
  bool in_reasoning_ = false;
  bool printed_ = false;
};

std::string stats_text(const Answer& answer, const EngineInfo& info);

}  // namespace espalier::cli
