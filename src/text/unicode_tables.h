// The generated table and its types; for unicode.cc and unicode_nfc.cc only.
#pragma once

#include "text/unicode.h"

namespace espalier::unicode_tables {

struct CategoryRun {
  uint32_t first;
  uint8_t category;  // index into the list of names in unicode.cc
};

#include "text/unicode_table.inc"

}  // namespace espalier::unicode_tables
