// A string that knows, for each byte, whether the chat template wrote it or whether it is data (message content, tool
// results, tool names): only template bytes may become control tokens (rules.md, section 6).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

enum class Origin : uint8_t { data, control };

// Runs of equal origin, as offsets; kept normalised (no empty run, neighbours differ). Cheap to append and to slice.
class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string_view text, Origin origin) { append(text, origin); }

  void append(std::string_view text, Origin origin) {
    if (text.empty()) return;
    if (runs_.empty() || runs_.back().origin != origin)
      runs_.push_back({text_.size() + text.size(), origin});
    else
      runs_.back().end += text.size();
    text_ += text;
  }
  void append(const MarkedText& other);
  MarkedText substr(size_t begin, size_t length = std::string::npos) const;

  struct Run {
    size_t end;  // one past the last byte
    Origin origin;
    bool operator==(const Run&) const = default;
  };
  const std::string& text() const { return text_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // True if all of [begin, end) was written by the template.
  bool is_control(size_t begin, size_t end) const;
  bool operator==(const MarkedText&) const = default;

 private:
  std::string text_;
  std::vector<Run> runs_;
};

}  // namespace espalier
