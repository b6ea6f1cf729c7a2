// ESP_CHECK: we are wrong (a broken invariant), never the input. Always on; one condition a check.
#pragma once

namespace espalier {
// Hands the sentence to the installed handler and traps. The default handler keeps the text in a global that a debugger
// shows; front ends install one that prints.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
using CheckHandler = void (*)(const char* condition, const char* file, int line);
void set_check_handler(CheckHandler handler);
}  // namespace espalier

#define ESP_CHECK(cond) \
  do {                  \
    if (!(cond)) [[unlikely]] ::espalier::check_failed(#cond, __FILE__, __LINE__); \
  } while (0)
#ifdef NDEBUG
#define ESP_DCHECK(cond) \
  do {                   \
  } while (0)
#else
#define ESP_DCHECK(cond) ESP_CHECK(cond)
#endif
