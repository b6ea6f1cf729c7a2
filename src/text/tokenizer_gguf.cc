// Reads the tokenizer that a GGUF file carries. The file names its splitting rule only by a word (tokenizer.ggml.pre);
// the rules behind the known words are those of the models' own tokenizer.json.
#include <algorithm>

#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace espalier {
namespace {

enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Rule {
  std::string_view pattern;  // empty: single digits, then ByteLevel's own
  bool nfc, whole_pieces, add_bos;
};
constexpr Rule kLlama{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                      false, true, true};
constexpr Rule kQwen2{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                      true, false, false};
constexpr Rule kSmollm{"", false, false, false};
struct Named {
  std::string_view name;
  const Rule* rule;
};
constexpr Named kRules[] = {{"llama-bpe", &kLlama}, {"llama3", &kLlama}, {"llama-v3", &kLlama},
                            {"lfm2", &kLlama},      {"qwen2", &kQwen2},  {"smollm", &kSmollm}};

Value object(Value::Object members) { return Value(std::move(members)); }

// The same rule as a pre_tokenizer of tokenizer.json.
Value pre_tokenizer_of(const Rule& rule) {
  const bool digits = rule.pattern.empty();
  Value first = digits ? object({{"type", "Digits"}, {"individual_digits", true}})
                       : object({{"type", "Split"}, {"pattern", object({{"Regex", rule.pattern}})}, {"behavior", "Isolated"}, {"invert", false}});
  Value last = object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", digits}});
  return object({{"type", "Sequence"}, {"pretokenizers", Value::Array{std::move(first), std::move(last)}}});
}

class GgufReader {
 public:
  explicit GgufReader(const Value& metadata) : metadata_(metadata) {}

  Result<TokenizerParts> read() {
    const Value *model = get("model"), *pre = get("pre");
    if (model == nullptr || !model->is_string()) return corrupt("the file carries no tokenizer (tokenizer.ggml.model is missing)", "tokenizer.ggml.model");
    if (model->as_string() != "gpt2")
      return unsupported("tokenizer.ggml.model \"" + model->as_string() + "\" is not supported (known: gpt2)", "tokenizer.ggml.model");
    if (pre == nullptr || !pre->is_string())
      return unsupported("tokenizer.ggml.pre is missing, so it is not known how this tokenizer splits text", "tokenizer.ggml.pre");
    const auto* named = std::find_if(std::begin(kRules), std::end(kRules), [&](const Named& n) { return n.name == pre->as_string(); });
    if (named == std::end(kRules))
      return unsupported("tokenizer.ggml.pre \"" + pre->as_string() + "\" is not supported (known: lfm2, llama-bpe, llama3, llama-v3, qwen2, smollm)", "tokenizer.ggml.pre");
    const Rule& rule = *named->rule;
    ESPALIER_ASSIGN(out_.pre_tokenizer, PreTokenizer::parse(pre_tokenizer_of(rule)));
    out_.nfc = rule.nfc;
    out_.bpe.set_whole_pieces(rule.whole_pieces);
    ESPALIER_TRY(read_tokens());
    ESPALIER_TRY(read_merges());
    ESPALIER_TRY(read_ends(rule));
    return std::move(out_);
  }

 private:
  const Value* get(const std::string& key) const { return metadata_.find("tokenizer.ggml." + key); }

  Status read_tokens() {
    const Value *tokens = get("tokens"), *types = get("token_type");
    if (tokens == nullptr || !tokens->is_array()) return corrupt("expected a list of texts in tokenizer.ggml.tokens", "tokenizer.ggml.tokens");
    if (types == nullptr || !types->is_array() || types->as_array().size() != tokens->as_array().size())
      return corrupt("expected as many entries in tokenizer.ggml.token_type as there are tokens", "tokenizer.ggml.token_type");
    out_.bpe.reserve(tokens->as_array().size(), 0);
    for (size_t i = 0; i < tokens->as_array().size(); ++i) {
      const Value &token = tokens->as_array()[i], &type = types->as_array()[i];
      if (!token.is_string() || !type.is_int())
        return corrupt("token " + std::to_string(i) + " is not a text with an integer type", "tokenizer.ggml.tokens");
      ESPALIER_TRY(read_token(token.as_string(), type.as_int(), static_cast<int64_t>(i)));
    }
    return {};
  }

  Status read_token(const std::string& text, int64_t type, int64_t id) {
    if (type == kByte) return unsupported("token " + std::to_string(id) + " is a byte token, which byte-level BPE does not have", "tokenizer.ggml.token_type");
    if (type < kNormal || type > kByte) return corrupt("token " + std::to_string(id) + " has the unknown type " + std::to_string(type), "tokenizer.ggml.token_type");
    if (type == kUnused) return {};  // padding of the vocabulary
    ESPALIER_TRY(out_.bpe.add_token(text, id));
    if (type == kNormal || text.empty()) return {};
    AddedToken added;
    added.content = text;
    added.id = static_cast<int32_t>(id);
    added.special = type != kUserDefined;
    out_.added.push_back(std::move(added));
    return {};
  }

  Status read_merges() {
    const Value* merges = get("merges");
    if (merges == nullptr || !merges->is_array()) return corrupt("expected a list of texts in tokenizer.ggml.merges", "tokenizer.ggml.merges");
    out_.bpe.reserve(0, merges->as_array().size());
    for (const Value& merge : merges->as_array()) {
      const std::string_view text = merge.is_string() ? std::string_view(merge.as_string()) : std::string_view();
      const size_t space = text.find(' ', 1);
      if (space == std::string_view::npos) return corrupt("a merge in tokenizer.ggml.merges is not \"left right\"", "tokenizer.ggml.merges");
      ESPALIER_TRY(out_.bpe.add_merge(text.substr(0, space), text.substr(space + 1)));
    }
    return {};
  }

  // -1: not there. Fails for an id that is no token.
  Result<int32_t> token_id(const char* key) const {
    const Value* v = get(key);
    if (v == nullptr) return -1;
    if (!v->is_int() || v->as_int() < 0 || v->as_int() > kMaxTokenId || out_.bpe.spelling(static_cast<int32_t>(v->as_int())).empty())
      return corrupt(std::string("tokenizer.ggml.") + key + " is not the id of a token", std::string("tokenizer.ggml.") + key);
    return static_cast<int32_t>(v->as_int());
  }

  Status read_ends(const Rule& rule) {
    ESPALIER_ASSIGN(out_.bos, token_id("bos_token_id"));
    for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      ESPALIER_ASSIGN(const int32_t id, token_id(key));
      if (id >= 0 && std::find(out_.eos.begin(), out_.eos.end(), id) == out_.eos.end()) out_.eos.push_back(id);
    }
    make_special(out_.bos);
    for (const int32_t id : out_.eos) make_special(id);
    const Value *add_eos = get("add_eos_token"), *add_bos = get("add_bos_token");
    if (add_eos != nullptr && add_eos->is_bool() && add_eos->as_bool())
      return unsupported("tokenizer.ggml.add_eos_token puts a token behind the text, which is not supported", "tokenizer.ggml.add_eos_token");
    const bool wanted = add_bos != nullptr && add_bos->is_bool() ? add_bos->as_bool() : rule.add_bos;
    if (wanted && out_.bos < 0) return corrupt("this tokenizer begins texts with a token, and tokenizer.ggml.bos_token_id is missing", "tokenizer.ggml.bos_token_id");
    if (wanted) out_.prefix.push_back(out_.bos);
    return {};
  }

  // The tokens that begin or end a text are control tokens, whatever type the file gives them.
  void make_special(int32_t id) {
    if (id < 0) return;
    const auto it = std::find_if(out_.added.begin(), out_.added.end(), [&](const AddedToken& t) { return t.id == id; });
    if (it != out_.added.end()) {
      it->special = true;
      return;
    }
    AddedToken token;
    token.content = out_.bpe.spelling(id);
    token.id = id;
    token.special = true;
    out_.added.push_back(std::move(token));
  }

  const Value& metadata_;
  TokenizerParts out_;
};

}  // namespace

Result<Tokenizer> Tokenizer::from_gguf(const Value& metadata) {
  ESPALIER_ASSIGN(TokenizerParts parts, GgufReader(metadata).read());
  return build(std::move(parts));
}

}  // namespace espalier
