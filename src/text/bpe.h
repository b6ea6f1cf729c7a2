// Byte-level BPE: the vocabulary as bytes, the merges by rank, and the merging of one piece.
//
// Immutable after building and thread-safe. Ids are those of the file; at most kMaxTokenId.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "espalier/status.h"

namespace espalier {

inline constexpr int32_t kMaxTokenId = (1 << 24) - 1;

// The byte-to-character map of GPT-2: printable bytes are themselves, the others U+0100 and up.
// to_bytes: nothing is appended and false returned if a character is not of the map.
bool byte_level_to_bytes(std::string_view spelled, std::string& bytes);
std::string bytes_to_byte_level(std::string_view bytes);

class BpeModel {
 public:
  // Room for what is about to be added; only saves time. Requires: counts of things that are in memory already.
  void reserve(size_t tokens, size_t merges);
  // A token as the file spells it. Fails: an id out of range or used twice, a spelling used twice.
  Status add_token(std::string_view spelled, int64_t id);
  // Merges in order of rank. Fails where a part or the joined token is not in the vocabulary.
  Status add_merge(std::string_view left, std::string_view right);
  // A token that must never come out of ordinary text.
  void forbid(int32_t id);
  void set_whole_pieces(bool on) { whole_pieces_ = on; }  // "ignore_merges": a piece that is a token is that token

  int32_t id_of(std::string_view spelled) const;  // -1: none
  std::string_view spelling(int32_t id) const;    // as the file has it; empty: no such id
  std::string_view bytes(int32_t id) const;       // decoded; a spelling outside the byte alphabet stands for itself
  size_t token_count() const { return ids_.size(); }
  int32_t last_id() const { return static_cast<int32_t>(tokens_.size()) - 1; }
  bool has_all_bytes() const;

  // Scratch of encode; one for each thread, reused.
  struct Scratch {
    struct Symbol {
      int32_t id;
      uint32_t previous, next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;
    std::vector<int32_t> ids;
    std::vector<uint32_t> ranks;
  };
  // Appends the ids of one pre-token. A byte without a token is left out, as the reference does.
  // n log n in the length. Requires: piece shorter than 2^31 bytes.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const;

 private:
  struct Token {
    std::string_view spelled, bytes;
    bool present = false, forbidden = false;
  };
  static constexpr uint32_t kNoRank = 0xffffffffu;
  struct Merge {
    uint64_t pair;
    uint32_t rank;
    int32_t id;
  };
  const Merge* find_merge(int32_t left, int32_t right) const;
  void put_merge(uint64_t pair, uint32_t rank, int32_t id);
  void grow_table(size_t slots);
  void merge_short(Scratch& scratch, std::vector<int32_t>& out) const;
  void merge_long(Scratch& scratch, std::vector<int32_t>& out) const;

  std::deque<std::string> text_;  // owns spellings and bytes; never moves them
  std::vector<Token> tokens_;     // by id
  std::unordered_map<std::string_view, int32_t> ids_;      // by spelling
  std::unordered_map<std::string_view, int32_t> by_bytes_;  // only spellings of the byte alphabet
  std::array<int32_t, 256> byte_ids_ = [] {
    std::array<int32_t, 256> none;
    none.fill(-1);
    return none;
  }();
  std::vector<Merge> table_;  // open addressing; a power of two
  size_t merges_ = 0;
  uint32_t next_rank_ = 0;
  std::string joined_;  // of the merge being added
  bool whole_pieces_ = false;
};

}  // namespace espalier
