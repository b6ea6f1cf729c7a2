#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"
#include "text/unicode.h"

namespace espalier {
namespace {

constexpr uint64_t kNoPair = ~uint64_t{0};
// Below this many symbols a scan for the best pair beats a heap.
constexpr size_t kShort = 40;

struct ByteAlphabet {
  ByteAlphabet() {
    byte_of.fill(-1);
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      code_of[b] = itself ? b : next++;
      byte_of[code_of[b]] = static_cast<int16_t>(b);
    }
  }
  std::array<uint32_t, 256> code_of;
  std::array<int16_t, 512> byte_of;
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet a;
  return a;
}

uint64_t pair_key(int32_t left, int32_t right) { return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right); }

size_t slot_of(uint64_t key, size_t mask) {
  key *= 0x9e3779b97f4a7c15ull;
  return static_cast<size_t>(key ^ key >> 32) & mask;
}

}  // namespace

bool byte_level_to_bytes(std::string_view spelled, std::string& bytes) {
  const size_t before = bytes.size();
  for (size_t i = 0; i < spelled.size();) {
    const uint32_t code = next_code_point(spelled, i);
    if (code >= 512 || alphabet().byte_of[code] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(alphabet().byte_of[code]);
  }
  return true;
}

std::string bytes_to_byte_level(std::string_view bytes) {
  std::string out;
  for (const char b : bytes) append_utf8(alphabet().code_of[static_cast<unsigned char>(b)], out);
  return out;
}

void BpeModel::reserve(size_t tokens, size_t merges) {
  tokens_.reserve(tokens);
  ids_.reserve(tokens);
  by_bytes_.reserve(tokens);
  if (const size_t slots = std::bit_ceil(merges * 2 + 64); slots > table_.size()) grow_table(slots);
}

Status BpeModel::add_token(std::string_view spelled, int64_t id) {
  const auto named = [&] { return "the token \"" + std::string(spelled.substr(0, 60)) + "\""; };
  if (id < 0 || id > kMaxTokenId) return corrupt(named() + " has the id " + std::to_string(id) + ", outside 0 to " + std::to_string(kMaxTokenId));
  if (find_invalid_utf8(spelled) != std::string_view::npos) return corrupt("the token with the id " + std::to_string(id) + " is not valid UTF-8");
  if (tokens_.size() <= static_cast<size_t>(id)) tokens_.resize(static_cast<size_t>(id) + 1);
  Token& token = tokens_[static_cast<size_t>(id)];
  if (token.present)
    return corrupt(named() + " has the id " + std::to_string(id) + ", which \"" + std::string(token.spelled.substr(0, 60)) + "\" has already");
  token.present = true;
  token.spelled = text_.emplace_back(spelled);
  token.bytes = token.spelled;
  if (!ids_.emplace(token.spelled, static_cast<int32_t>(id)).second) return corrupt(named() + " is in the vocabulary twice");
  std::string bytes;
  if (!byte_level_to_bytes(spelled, bytes)) return {};
  if (bytes != spelled) token.bytes = text_.emplace_back(std::move(bytes));
  by_bytes_.emplace(token.bytes, static_cast<int32_t>(id));
  if (token.bytes.size() == 1) byte_ids_[static_cast<unsigned char>(token.bytes[0])] = static_cast<int32_t>(id);
  return {};
}

Status BpeModel::add_merge(std::string_view left, std::string_view right) {
  const uint32_t rank = next_rank_++;
  joined_.assign(left).append(right);
  const int32_t l = id_of(left), r = id_of(right), id = id_of(joined_);
  if (l < 0 || r < 0 || id < 0)
    return corrupt("merge " + std::to_string(rank) + " (\"" + std::string(left.substr(0, 60)) + "\" + \"" + std::string(right.substr(0, 60)) +
                   "\") names a token that is not in the vocabulary");
  put_merge(pair_key(l, r), rank, id);
  return {};
}

void BpeModel::forbid(int32_t id) {
  if (id >= 0 && static_cast<size_t>(id) < tokens_.size()) tokens_[static_cast<size_t>(id)].forbidden = true;
}

int32_t BpeModel::id_of(std::string_view spelled) const {
  const auto it = ids_.find(spelled);
  return it == ids_.end() ? -1 : it->second;
}

std::string_view BpeModel::spelling(int32_t id) const {
  return id < 0 || static_cast<size_t>(id) >= tokens_.size() ? std::string_view{} : tokens_[static_cast<size_t>(id)].spelled;
}

std::string_view BpeModel::bytes(int32_t id) const {
  return id < 0 || static_cast<size_t>(id) >= tokens_.size() ? std::string_view{} : tokens_[static_cast<size_t>(id)].bytes;
}

bool BpeModel::has_all_bytes() const {
  return std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
}

void BpeModel::grow_table(size_t slots) {
  std::vector<Merge> old = std::move(table_);
  table_.assign(slots, Merge{kNoPair, 0, 0});
  for (const Merge& m : old) {
    if (m.pair == kNoPair) continue;
    size_t i = slot_of(m.pair, slots - 1);
    while (table_[i].pair != kNoPair) i = (i + 1) & (slots - 1);
    table_[i] = m;
  }
}

void BpeModel::put_merge(uint64_t pair, uint32_t rank, int32_t id) {
  if ((merges_ + 1) * 2 > table_.size()) grow_table(std::max<size_t>(64, table_.size() * 2));
  size_t i = slot_of(pair, table_.size() - 1);
  while (table_[i].pair != kNoPair && table_[i].pair != pair) i = (i + 1) & (table_.size() - 1);
  if (table_[i].pair == kNoPair) ++merges_;
  table_[i] = {pair, rank, id};  // a pair that is listed again takes its last rank
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  if (table_.empty()) return nullptr;
  const uint64_t pair = pair_key(left, right);
  size_t i = slot_of(pair, table_.size() - 1);
  while (table_[i].pair != pair) {
    if (table_[i].pair == kNoPair) return nullptr;
    i = (i + 1) & (table_.size() - 1);
  }
  return tokens_[static_cast<size_t>(table_[i].id)].forbidden ? nullptr : &table_[i];
}

void BpeModel::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const {
  if (whole_pieces_) {
    const auto it = by_bytes_.find(piece);
    if (it != by_bytes_.end() && !tokens_[static_cast<size_t>(it->second)].forbidden) {
      out.push_back(it->second);
      return;
    }
  }
  scratch.ids.clear();
  for (const char b : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(b)];
    if (id >= 0 && !tokens_[static_cast<size_t>(id)].forbidden) scratch.ids.push_back(id);
  }
  if (scratch.ids.size() <= kShort)
    merge_short(scratch, out);
  else
    merge_long(scratch, out);
}

// The pair of lowest rank first, the leftmost of equal ones. Ranks of neighbours are kept beside the ids.
void BpeModel::merge_short(Scratch& scratch, std::vector<int32_t>& out) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::vector<uint32_t>& ranks = scratch.ranks;  // of (i, i + 1)
  const auto rank_at = [&](size_t i) {
    if (i + 1 >= ids.size()) return kNoRank;
    const Merge* m = find_merge(ids[i], ids[i + 1]);
    return m == nullptr ? kNoRank : m->rank;
  };
  ranks.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ranks[i] = rank_at(i);
  while (ids.size() > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) break;
    const auto i = static_cast<size_t>(best - ranks.begin());
    ids[i] = find_merge(ids[i], ids[i + 1])->id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks.erase(ranks.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

// The same order by a heap of (rank, place) over a linked list; entries whose pair has changed are dropped when met.
void BpeModel::merge_long(Scratch& scratch, std::vector<int32_t>& out) const {
  constexpr uint32_t kEnd = 0xffffffffu;
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const size_t n = scratch.ids.size();
  ESP_CHECK(n < kEnd);
  symbols.resize(n);
  heap.clear();
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<uint32_t>(i);
    symbols[i] = {scratch.ids[i], i == 0 ? kEnd : at - 1, i + 1 == n ? kEnd : at + 1};
    if (i + 1 == n) break;
    if (const Merge* m = find_merge(scratch.ids[i], scratch.ids[i + 1])) heap.push_back(uint64_t{m->rank} << 32 | at);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t at) {
    const Merge* m = find_merge(symbols[at].id, symbols[symbols[at].next].id);
    if (m == nullptr) return;
    heap.push_back(uint64_t{m->rank} << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto at = static_cast<uint32_t>(heap.back());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    auto& left = symbols[at];
    if (left.id < 0 || left.next == kEnd) continue;
    auto& right = symbols[left.next];
    const Merge* m = find_merge(left.id, right.id);
    if (m == nullptr || m->rank != rank) continue;
    left.id = m->id;
    left.next = right.next;
    right.id = -1;
    if (left.next != kEnd) {
      symbols[left.next].previous = at;
      push(at);
    }
    if (left.previous != kEnd) push(left.previous);
  }
  for (uint32_t at = 0; at != kEnd && n > 0; at = symbols[at].next) out.push_back(symbols[at].id);
}

}  // namespace espalier
