#include "text/utf8_stream.h"

namespace espalier {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

struct Sequence {
  size_t length;  // bytes that belong together, at least 1
  enum Kind { valid, invalid, unfinished } kind;
};

// The sequence that starts at `text[0]`: a character, a maximal ill-formed part, or a good begin that the text ends in.
Sequence first_sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, Sequence::valid};
  size_t length = 0;
  unsigned low = 0x80, high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {1, Sequence::invalid};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, Sequence::unfinished};
    if (byte(i) < low || byte(i) > high) return {i, Sequence::invalid};
    low = 0x80;
    high = 0xbf;
  }
  return {length, Sequence::valid};
}

// Appends what is complete; returns how many bytes that took.
size_t append_complete(std::string_view bytes, std::string& out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Sequence s = first_sequence(bytes.substr(at));
    if (s.kind == Sequence::unfinished) break;
    out += s.kind == Sequence::valid ? bytes.substr(at, s.length) : kReplacement;
    at += s.length;
  }
  return at;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (append_complete(bytes, out) < bytes.size()) out += kReplacement;
  return out;
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out;
  pending_ += bytes;
  pending_.erase(0, append_complete(pending_, out));
  return out;
}

std::string Utf8Stream::flush(Tail tail) {
  const bool replace = !pending_.empty() && tail == Tail::replace;
  pending_.clear();
  return std::string(replace ? kReplacement : std::string_view());
}

}  // namespace espalier
