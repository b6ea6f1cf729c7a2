// Normal form C as the reference's normaliser has it: utf8proc does the work on those code points that the reference's
// Unicode version knows, and all others pass through. (Normalisation of assigned code points never changes between
// versions, so any utf8proc of at least that age gives the same text.)
#pragma once

#include <string>
#include <string_view>

#include "text/marked_text.h"

namespace espalier {

// Bytes that normalisation leaves alone keep their origin; what it joins is control only if all of it was.
// Linear but for the sorting of runs of combining marks. Requires: valid UTF-8.
MarkedText to_nfc(const MarkedText& text);
std::string to_nfc(std::string_view text);

}  // namespace espalier
