// The answer's text, sorted while it streams. Nothing that may still turn out to be a marker is handed out.
#include <algorithm>
#include <utility>

#include "base/json.h"
#include "engine/call_syntax.h"
#include "engine/chat_format.h"

namespace espalier {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kSpace = " \t\r\n";

// How many bytes at the end of `text` may be the beginning of `marker`.
size_t begun(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n)
    if (text.ends_with(marker.substr(0, n))) return n;
  return 0;
}

}  // namespace

struct ChatParser::State {
  enum class Mode { start, thought, text, call };
  Mode mode = Mode::start;
  bool reasoning = false;
  CallMarkers markers;
  Value tools;
  std::string held;         // not handed out yet
  bool trim = false;        // white space at the head of what comes next is dropped
  std::string call;         // behind the opening marker
  int calls = 0;
  std::vector<ChatPiece> out;

  void hand_out(Delta::Kind kind, std::string_view text) {
    if (trim) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return;
    trim = false;
    if (!out.empty() && out.back().kind == kind && kind != Delta::Kind::tool_call) out.back().text += text;
    else out.push_back({kind, std::string(text), {}});
  }

  void open_thought() {
    mode = Mode::thought;
    reasoning = true;
    trim = true;
  }
  void open_text() {
    mode = Mode::text;
    trim = true;
  }
  void open_call() {
    if (mode == Mode::thought) close_thought(held);
    else hand_out(Delta::Kind::text, held);
    held.clear();
    call.clear();
    mode = Mode::call;
    trim = false;
  }
  // White space that ends a thought belongs to the frame.
  void close_thought(std::string_view rest) {
    const size_t last = rest.find_last_not_of(kSpace);
    hand_out(Delta::Kind::reasoning, last == std::string_view::npos ? std::string_view() : rest.substr(0, last + 1));
  }
  void close_call(bool complete) {
    auto parsed = parse_calls(call);
    bool offered = parsed.ok();
    if (offered)
      for (const WrittenCall& c : *parsed) offered = offered && is_offered(tools, c);
    mode = Mode::text;
    if (!offered) {
      hand_out(Delta::Kind::text, call);
      return;
    }
    for (const WrittenCall& c : *parsed) {
      ChatPiece piece{Delta::Kind::tool_call, {}, {"call_" + std::to_string(calls++), c.name, to_json(c.arguments)}};
      out.push_back(std::move(piece));
    }
    trim = complete;
  }

  // Consumes what can be told of `held`. True: the mode changed, look again.
  bool step() {
    switch (mode) {
      case Mode::start: {
        const size_t first = held.find_first_not_of(kSpace);
        if (first == std::string::npos) return false;
        const std::string_view rest = std::string_view(held).substr(first);
        if (reasoning && rest.starts_with(kThink)) {
          held.erase(0, first + kThink.size());
          open_thought();
          return true;
        }
        if (reasoning && kThink.starts_with(rest)) return false;
        mode = Mode::text;
        return true;
      }
      case Mode::thought: {
        const size_t end = held.find(kThinkEnd);
        if (end != std::string::npos) {
          close_thought(std::string_view(held).substr(0, end));
          held.erase(0, end + kThinkEnd.size());
          open_text();
          return true;
        }
        if (find_open()) return true;
        size_t keep = std::max(begun(held, kThinkEnd), markers.in_text ? begun(held, markers.open) : 0);
        while (keep < held.size() && kSpace.find(held[held.size() - keep - 1]) != std::string_view::npos) ++keep;
        release(Delta::Kind::reasoning, keep);
        return false;
      }
      case Mode::text:
        if (find_open()) return true;
        release(Delta::Kind::text, markers.in_text ? begun(held, markers.open) : 0);
        return false;
      case Mode::call: {
        call += held;
        held.clear();
        if (!markers.in_text) return false;
        const size_t end = call.find(markers.close);
        if (end == std::string::npos) return false;
        held = call.substr(end + markers.close.size());
        call.resize(end);
        close_call(true);
        return true;
      }
    }
    return false;
  }
  bool find_open() {
    if (!markers.in_text || markers.open.empty()) return false;
    const size_t at = held.find(markers.open);
    if (at == std::string::npos) return false;
    std::string rest = held.substr(at + markers.open.size());
    held.resize(at);
    open_call();
    held = std::move(rest);
    return true;
  }
  void release(Delta::Kind kind, size_t keep) {
    hand_out(kind, std::string_view(held).substr(0, held.size() - keep));
    held.erase(0, held.size() - keep);
  }
  std::vector<ChatPiece> taken() { return std::exchange(out, {}); }
};

ChatParser::ChatParser(const ChatFormat& format, const Value& tools, bool in_thought) : state_(std::make_unique<State>()) {
  state_->reasoning = format.has_reasoning() || in_thought;
  state_->markers = format.call_markers();
  state_->tools = tools;
  if (in_thought) state_->open_thought();
}
ChatParser::~ChatParser() = default;
ChatParser::ChatParser(ChatParser&&) noexcept = default;
ChatParser& ChatParser::operator=(ChatParser&&) noexcept = default;
bool ChatParser::has_reasoning() const { return state_->reasoning; }

std::vector<ChatPiece> ChatParser::push(std::string_view text) {
  state_->held += text;
  while (state_->step()) {
  }
  return state_->taken();
}

std::vector<ChatPiece> ChatParser::push_control(std::string_view spelling) {
  State& s = *state_;
  if (spelling == kThink && s.mode == State::Mode::text) {  // a thought between two texts
    s.hand_out(Delta::Kind::text, s.held);
    s.held.clear();
    s.open_thought();
    return s.taken();
  }
  if (spelling == kThink && s.mode == State::Mode::start) {
    s.held.clear();
    s.open_thought();
    return {};
  }
  if (spelling == kThinkEnd) return s.mode == State::Mode::thought ? push(spelling) : std::vector<ChatPiece>();
  if (s.markers.in_text || s.markers.open.empty()) return {};
  if (spelling == s.markers.open && s.mode != State::Mode::call) s.open_call();
  else if (spelling == s.markers.close && s.mode == State::Mode::call) s.close_call(true);
  return s.taken();
}

std::vector<ChatPiece> ChatParser::finish() {
  State& s = *state_;
  if (s.mode == State::Mode::call) {
    s.call += s.held;
    s.close_call(false);
  } else if (s.mode == State::Mode::thought) {
    s.close_thought(s.held);
  } else {
    s.hand_out(Delta::Kind::text, s.held);
  }
  s.held.clear();
  return s.taken();
}

}  // namespace espalier
