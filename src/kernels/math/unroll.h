// Unrolls the loop that follows completely: its body works on registers that an index must name.
#pragma once

#if defined(__clang__)
#define ESPALIER_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ESPALIER_UNROLL _Pragma("GCC unroll 16")
#endif
