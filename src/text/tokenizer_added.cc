#include "text/tokenizer_added.h"

#include <algorithm>

#include "text/unicode.h"

namespace espalier {
namespace {

size_t space_begin(std::string_view text, size_t end, size_t floor) {
  while (end > floor) {
    size_t begin = end - 1;
    while (begin > floor && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    size_t after = begin;
    if (!is_added_token_space(next_code_point(text, after))) break;
    end = begin;
  }
  return end;
}

size_t space_end(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t after = begin;
    if (!is_added_token_space(next_code_point(text, after))) break;
    begin = after;
  }
  return begin;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_added_token_word(code_point_before(text, begin))) return false;
  return end == text.size() || !is_added_token_word(next_code_point(text, end));
}

}  // namespace

void AddedTokenSplitter::add(const AddedToken& token, std::string_view pattern) {
  trie_.insert(pattern, static_cast<uint32_t>(tokens_.size()));
  tokens_.push_back(token);
}

AddedTokenSplitter::Match AddedTokenSplitter::longest(std::string_view text, size_t begin, const MarkedText::Run& run) const {
  Match best;
  uint32_t node = ByteTrie::kRoot;
  for (size_t i = begin; i < text.size(); ++i) {
    node = trie_.child(node, text[i]);
    if (node == ByteTrie::kNone) break;
    if (trie_.value(node) == ByteTrie::kNone) continue;
    const AddedToken& token = tokens_[trie_.value(node)];
    if (token.special && i + 1 > run.end) continue;
    best = {i + 1, &token};
  }
  return best;
}

void AddedTokenSplitter::split(std::string_view text, std::span<const MarkedText::Run> runs, std::vector<Part>& parts) const {
  size_t text_begin = 0;  // of the text that no token has taken
  size_t run = 0;
  size_t spaces_from = 0, spaces_to = 0;  // the last run of white space that a token ate
  for (size_t at = 0; at < text.size();) {
    if (trie_.child(ByteTrie::kRoot, text[at]) == ByteTrie::kNone) {
      ++at;
      continue;
    }
    while (runs[run].end <= at) ++run;
    const Match match = longest(text, at, runs[run]);
    if (match.token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = match.end;
    at = match.end;
    if (match.token->special && runs[run].origin != Origin::control) continue;
    if (match.token->single_word && !stands_alone(text, begin, end)) continue;
    if (match.token->lstrip) begin = begin > text_begin ? space_begin(text, begin, text_begin) : text_begin;
    if (match.token->rstrip) {
      if (end < spaces_from || end > spaces_to) {
        spaces_from = end;
        spaces_to = space_end(text, end);
      }
      end = spaces_to;
    }
    if (begin >= end) continue;  // white space that the token before it has eaten
    if (text_begin < begin) parts.push_back({text_begin, begin, -1});
    parts.push_back({begin, end, match.token->id});
    text_begin = end;
  }
  if (text_begin < text.size()) parts.push_back({text_begin, text.size(), -1});
}

}  // namespace espalier
