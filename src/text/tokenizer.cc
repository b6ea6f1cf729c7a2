#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "text/tokenizer_parts.h"
#include "text/unicode.h"
#include "text/unicode_nfc.h"
#include "text/utf8_stream.h"

namespace espalier {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

}  // namespace

struct Tokenizer::Impl {
  TokenizerParts parts;
  AddedTokenSplitter raw, normalized;  // looked for before and after normalisation
  std::unordered_map<int32_t, const AddedToken*> added_by_id;
  std::unordered_map<std::string_view, int32_t> added_by_text;
  int32_t last_id = -1;

  struct Work {
    explicit Work(size_t bytes) : budget(bytes) {}
    RegexBudget budget;
    PreTokenizer::Pieces pieces;
    BpeModel::Scratch scratch;
    std::vector<int32_t> ids;
  };
  Result<std::vector<int32_t>> encode(std::string_view text, std::span<const MarkedText::Run> runs, bool add_bos) const;
  Status encode_normalized(std::string_view text, std::span<const MarkedText::Run> runs, Work& work) const;
  Status encode_pieces(std::string_view text, Work& work) const;
};

Result<Tokenizer> Tokenizer::build(TokenizerParts parts) {
  auto impl = std::make_shared<Impl>();
  impl->parts = std::move(parts);
  std::vector<AddedToken>& added = impl->parts.added;
  impl->last_id = impl->parts.bpe.last_id();
  for (const bool special : {true, false}) {  // of equal patterns the special one counts
    for (const AddedToken& token : added) {
      if (token.special != special) continue;
      if (token.content.size() > kMaxAddedTokenBytes)
        return unsupported("the added token with the id " + std::to_string(token.id) + " has " + std::to_string(token.content.size()) +
                           " bytes, more than " + std::to_string(kMaxAddedTokenBytes));
      impl->added_by_id.emplace(token.id, &token);
      impl->added_by_text.emplace(token.content, token.id);
      impl->last_id = std::max(impl->last_id, token.id);
      if (token.special) impl->parts.bpe.forbid(token.id);
      if (token.normalized)
        impl->normalized.add(token, impl->parts.nfc ? to_nfc(token.content) : token.content);
      else
        impl->raw.add(token, token.content);
    }
  }
  for (const int32_t id : impl->parts.prefix)
    if (id < 0 || id > impl->last_id) return corrupt("the tokenizer puts the id " + std::to_string(id) + " in front of text, and has no such token");
  return Tokenizer(std::shared_ptr<const Impl>(std::move(impl)));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const MarkedText::Run run{text.size(), options.special ? Origin::control : Origin::data};
  return impl_->encode(text, {&run, 1}, options.add_bos);
}

Result<std::vector<int32_t>> Tokenizer::encode(const MarkedText& text, EncodeOptions options) const {
  return impl_->encode(text.text(), text.runs(), options.add_bos);
}

Result<std::vector<int32_t>> Tokenizer::Impl::encode(std::string_view text, std::span<const MarkedText::Run> runs, bool add_bos) const {
  if (text.size() > kMaxTextBytes)
    return invalid("the text has " + std::to_string(text.size()) + " bytes; at most " + std::to_string(kMaxTextBytes) + " can be read at once");
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
    return invalid("the text is not valid UTF-8 at byte " + std::to_string(bad));
  Work work(text.size());
  if (add_bos) work.ids = parts.prefix;
  std::vector<AddedTokenSplitter::Part> split;
  raw.split(text, runs, split);
  size_t run = 0;
  std::vector<MarkedText::Run> local;
  for (const auto& part : split) {
    if (part.id >= 0) {
      work.ids.push_back(part.id);
      continue;
    }
    // The runs of this part, counted from its begin. Parts ascend, but for white space that two tokens both ate.
    local.clear();
    while (run > 0 && runs[run - 1].end > part.begin) --run;
    while (runs[run].end <= part.begin) ++run;
    for (size_t r = run; local.empty() || local.back().end < part.end - part.begin; ++r)
      local.push_back({std::min(runs[r].end, part.end) - part.begin, runs[r].origin});
    ESPALIER_TRY(encode_normalized(text.substr(part.begin, part.end - part.begin), local, work));
  }
  return std::move(work.ids);
}

Status Tokenizer::Impl::encode_normalized(std::string_view text, std::span<const MarkedText::Run> runs, Work& work) const {
  if (normalized.empty()) return parts.nfc ? encode_pieces(to_nfc(text), work) : encode_pieces(text, work);
  MarkedText marked;
  size_t begin = 0;
  for (const MarkedText::Run& run : runs) {
    marked.append(text.substr(begin, run.end - begin), run.origin);
    begin = run.end;
  }
  if (parts.nfc) marked = to_nfc(marked);
  std::vector<AddedTokenSplitter::Part> split;
  normalized.split(marked.text(), marked.runs(), split);
  for (const auto& part : split) {
    if (part.id >= 0)
      work.ids.push_back(part.id);
    else
      ESPALIER_TRY(encode_pieces(std::string_view(marked.text()).substr(part.begin, part.end - part.begin), work));
  }
  return {};
}

Status Tokenizer::Impl::encode_pieces(std::string_view text, Work& work) const {
  ESPALIER_TRY(parts.pre_tokenizer.split(text, work.budget, work.pieces));
  for (const TextSpan& span : work.pieces.spans)
    parts.bpe.encode(work.pieces.text.substr(span.begin, span.end - span.begin), work.scratch, work.ids);
  return {};
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  const auto it = impl_->added_by_id.find(id);
  return it != impl_->added_by_id.end() ? std::string_view(it->second->content) : impl_->parts.bpe.bytes(id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids)
    if (!skip_special || !is_special(id)) bytes += token_bytes(id);
  return replace_invalid_utf8(bytes);
}

bool Tokenizer::is_token(int32_t id) const { return impl_->added_by_id.contains(id) || !impl_->parts.bpe.spelling(id).empty(); }

bool Tokenizer::is_special(int32_t id) const {
  const auto it = impl_->added_by_id.find(id);
  return it != impl_->added_by_id.end() && it->second->special;
}

int32_t Tokenizer::id_of(std::string_view token) const {
  const auto it = impl_->added_by_text.find(token);
  return it != impl_->added_by_text.end() ? it->second : impl_->parts.bpe.id_of(token);
}

int32_t Tokenizer::vocab_size() const { return impl_->last_id + 1; }
int32_t Tokenizer::bos_id() const { return impl_->parts.bos; }
const std::vector<int32_t>& Tokenizer::eos_ids() const { return impl_->parts.eos; }
bool Tokenizer::add_bos() const { return !impl_->parts.prefix.empty(); }
const std::vector<int32_t>& Tokenizer::prefix_ids() const { return impl_->parts.prefix; }

}  // namespace espalier
