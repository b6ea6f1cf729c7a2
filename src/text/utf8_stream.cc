#include "text/utf8_stream.h"

#include "text/unicode.h"

namespace espalier {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Appends what is complete; returns how many bytes that took.
size_t append_complete(std::string_view bytes, std::string& out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Sequence s = first_utf8_sequence(bytes.substr(at));
    if (s.kind == Utf8Sequence::unfinished) break;
    out += s.kind == Utf8Sequence::valid ? bytes.substr(at, s.length) : kReplacement;
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
