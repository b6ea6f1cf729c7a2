#include "base/check.h"

#include <atomic>

namespace espalier {
namespace {
std::atomic<CheckHandler> handler{nullptr};
}  // namespace

void set_check_handler(CheckHandler h) { handler.store(h); }

void check_failed(const char* condition, const char* file, int line) {
  if (CheckHandler h = handler.load()) h(condition, file, line);
  __builtin_trap();
}

}  // namespace espalier
