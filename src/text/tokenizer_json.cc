// Reads tokenizer.json (Hugging Face `tokenizers`) and what tokenizer_config.json adds to it.
#include <algorithm>
#include <unordered_map>

#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace espalier {
namespace {

std::string type_of(const Value& json) {
  const Value* type = json.find("type");
  return type != nullptr && type->is_string() ? type->as_string() : std::string("without a type");
}

const Value* member(const Value& json, std::string_view key) {
  const Value* v = json.find(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

bool is_true(const Value* v) { return v != nullptr && v->is_bool() && v->as_bool(); }
bool is_text(const Value* v) { return v != nullptr && v->is_string() && !v->as_string().empty(); }

class JsonReader {
 public:
  JsonReader(const Value& json, const Value& config) : json_(json), config_(config) {}

  Result<TokenizerParts> read() {
    if (!json_.is_object()) return corrupt("tokenizer.json: expected an object, found " + std::string(json_.type_name()));
    ESPALIER_TRY(read_model());
    if (const Value* normalizer = member(json_, "normalizer")) ESPALIER_TRY(read_normalizer(*normalizer, 0));
    const Value* pre = member(json_, "pre_tokenizer");
    if (pre == nullptr) return unsupported("tokenizer.json: only byte-level tokenizers are supported, and this one has no pre_tokenizer", "pre_tokenizer");
    ESPALIER_ASSIGN(out_.pre_tokenizer, PreTokenizer::parse(*pre));
    if (const Value* decoder = member(json_, "decoder")) ESPALIER_TRY(check_decoder(*decoder, 0));
    ESPALIER_TRY(read_added());
    if (const Value* post = member(json_, "post_processor")) ESPALIER_TRY(read_post_processor(*post, 0));
    ESPALIER_TRY(read_config());
    return std::move(out_);
  }

 private:
  Status read_model() {
    const Value* model = member(json_, "model");
    if (model == nullptr || !model->is_object()) return corrupt("tokenizer.json: there is no \"model\"", "model");
    if (member(*model, "type") != nullptr && type_of(*model) != "BPE")
      return unsupported("tokenizer model \"" + type_of(*model) + "\" is not supported (known: BPE)", "model");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (is_text(model->find(key))) return unsupported(std::string("tokenizer model: a \"") + key + "\" is not supported", key);
    if (const Value* dropout = member(*model, "dropout"); dropout != nullptr && !(dropout->is_number() && dropout->as_double() == 0))
      return unsupported("tokenizer model: \"dropout\" would make ids random; it is not supported", "dropout");
    const Value *vocab = member(*model, "vocab"), *merges = member(*model, "merges");
    if (vocab == nullptr || !vocab->is_object()) return corrupt("tokenizer.json: expected an object model.vocab", "vocab");
    if (merges == nullptr || !merges->is_array()) return corrupt("tokenizer.json: expected a list model.merges", "merges");
    out_.bpe.reserve(vocab->as_object().size(), merges->as_array().size());
    for (const auto& [spelled, id] : vocab->as_object()) {
      if (!id.is_int()) return corrupt("tokenizer.json: the id of \"" + spelled + "\" is not an integer", "vocab");
      ESPALIER_TRY(out_.bpe.add_token(spelled, id.as_int()));
    }
    for (const Value& merge : merges->as_array()) ESPALIER_TRY(read_merge(merge));
    out_.bpe.set_whole_pieces(is_true(model->find("ignore_merges")));
    // With a token for each byte nothing is ever unknown, and these two have nothing to do.
    if (!out_.bpe.has_all_bytes()) {
      if (member(*model, "unk_token") != nullptr)
        return unsupported("tokenizer model: \"unk_token\" with a vocabulary that lacks some bytes is not supported", "unk_token");
      if (is_true(model->find("byte_fallback")))
        return unsupported("tokenizer model: \"byte_fallback\" with a vocabulary that lacks some bytes is not supported", "byte_fallback");
    }
    return {};
  }

  // "a b", or ["a", "b"].
  Status read_merge(const Value& merge) {
    if (merge.is_string()) {
      const std::string_view text = merge.as_string();
      const size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
        return out_.bpe.add_merge(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.as_array().size() == 2 && merge.as_array()[0].is_string() && merge.as_array()[1].is_string()) {
      return out_.bpe.add_merge(merge.as_array()[0].as_string(), merge.as_array()[1].as_string());
    }
    return corrupt("tokenizer.json: a merge is neither \"left right\" nor [\"left\", \"right\"]", "merges");
  }

  Status read_normalizer(const Value& normalizer, int depth) {
    const std::string type = type_of(normalizer);
    if (type == "NFC") {
      out_.nfc = true;
      return {};
    }
    const Value* list = normalizer.find("normalizers");
    if (type != "Sequence" || list == nullptr || !list->is_array() || depth == 8)
      return unsupported("normalizer \"" + type + "\" is not supported (known: NFC, Sequence)", "normalizer");
    for (const Value& step : list->as_array()) ESPALIER_TRY(read_normalizer(step, depth + 1));
    return {};
  }

  Status check_decoder(const Value& decoder, int depth) {
    const std::string type = type_of(decoder);
    if (type == "ByteLevel") return {};
    const Value* list = decoder.find("decoders");
    if (type != "Sequence" || list == nullptr || !list->is_array() || depth == 8)
      return unsupported("decoder \"" + type + "\" is not supported (known: ByteLevel, Sequence)", "decoder");
    for (const Value& step : list->as_array()) ESPALIER_TRY(check_decoder(step, depth + 1));
    return {};
  }

  Status read_added() {
    const Value* list = member(json_, "added_tokens");
    if (list == nullptr) return {};
    if (!list->is_array()) return corrupt("tokenizer.json: expected a list \"added_tokens\"", "added_tokens");
    for (const Value& json : list->as_array()) {
      AddedToken token;
      const Value *content = json.find("content"), *id = json.find("id");
      if (content == nullptr || !content->is_string() || id == nullptr || !id->is_int())
        return corrupt("tokenizer.json: an added token has no \"content\" or no \"id\"", "added_tokens");
      token.content = content->as_string();
      if (token.content.empty()) continue;  // as the reference
      token.special = is_true(json.find("special"));
      token.normalized = is_true(json.find("normalized"));
      token.lstrip = is_true(json.find("lstrip"));
      token.rstrip = is_true(json.find("rstrip"));
      token.single_word = is_true(json.find("single_word"));
      ESPALIER_TRY(add(std::move(token), id->as_int()));
    }
    return {};
  }

  // The reference does not take the id from the file: it gives a token of the vocabulary that token's id, any other the
  // next free one. Where that differs from what the file says, one of the two is wrong.
  Status add(AddedToken token, int64_t id) {
    const int32_t known = out_.bpe.id_of(token.content);
    const auto count = static_cast<int64_t>(out_.bpe.token_count());
    const int64_t expected = known >= 0 ? known : std::max(count, last_added_ + 1);
    if (id != expected || id > kMaxTokenId)
      return corrupt("the added token \"" + token.content + "\" has the id " + std::to_string(id) + ", but by the rules of this format it gets " + std::to_string(expected), "added_tokens");
    if (known < 0 && !out_.bpe.spelling(static_cast<int32_t>(id)).empty())
      return corrupt("the added token \"" + token.content + "\" has the id " + std::to_string(id) + " of another token", "added_tokens");
    if (!added_index_.emplace(token.content, out_.added.size()).second)
      return corrupt("the added token \"" + token.content + "\" is listed twice", "added_tokens");
    last_added_ = std::max(last_added_, id);
    token.id = static_cast<int32_t>(id);
    out_.added.push_back(std::move(token));
    return {};
  }

  // Only what stands in front of the text is taken; anything behind it is refused.
  Status read_post_processor(const Value& post, int depth) {
    const std::string type = type_of(post);
    if (type == "ByteLevel") return {};
    if (type == "TemplateProcessing") return read_template(post);
    const Value* list = post.find("processors");
    if (type != "Sequence" || list == nullptr || !list->is_array() || depth == 8)
      return unsupported("post_processor \"" + type + "\" is not supported (known: ByteLevel, TemplateProcessing, Sequence)", "post_processor");
    for (const Value& step : list->as_array()) ESPALIER_TRY(read_post_processor(step, depth + 1));
    return {};
  }

  Status read_template(const Value& post) {
    const Value* single = post.find("single");
    if (single == nullptr || !single->is_array()) return corrupt("post_processor TemplateProcessing: expected a list \"single\"", "post_processor");
    std::vector<int32_t> prefix;
    int sequences = 0;
    for (const Value& piece : single->as_array()) {
      if (piece.find("Sequence") != nullptr) {
        ++sequences;
        continue;
      }
      const Value* name = piece.find_path("SpecialToken.id");
      if (name == nullptr || !name->is_string()) return corrupt("post_processor TemplateProcessing: a piece is neither a Sequence nor a SpecialToken", "post_processor");
      if (sequences > 0) return unsupported("post_processor TemplateProcessing puts \"" + name->as_string() + "\" behind the text, which is not supported", "post_processor");
      const Value* special = post.find("special_tokens");
      const Value* entry = special == nullptr ? nullptr : special->find(name->as_string());
      const Value* ids = entry == nullptr ? nullptr : entry->find("ids");
      if (ids == nullptr || !ids->is_array()) return corrupt("post_processor TemplateProcessing: there are no ids for \"" + name->as_string() + "\"", "post_processor");
      for (const Value& id : ids->as_array()) {
        if (!id.is_int() || id.as_int() < 0 || id.as_int() > kMaxTokenId) return corrupt("post_processor TemplateProcessing: an id is not a token id", "post_processor");
        prefix.push_back(static_cast<int32_t>(id.as_int()));
      }
    }
    if (sequences != 1) return unsupported("post_processor TemplateProcessing: expected the text once in \"single\"", "post_processor");
    out_.prefix.insert(out_.prefix.begin(), prefix.begin(), prefix.end());
    return {};
  }

  // A token named in the config: text, or an object with "content". Nothing if there is none.
  static std::string named(const Value& config, std::string_view key) {
    const Value* v = config.find(key);
    if (v != nullptr && v->is_object()) v = v->find("content");
    return is_text(v) ? v->as_string() : std::string();
  }

  Status read_config() {
    const std::string bos = named(config_, "bos_token"), eos = named(config_, "eos_token");
    for (const std::string& name : {bos, eos, named(config_, "pad_token")}) ESPALIER_TRY(make_special(name));
    out_.bos = id_of(bos);
    if (const int32_t id = id_of(eos); id >= 0) out_.eos.push_back(id);
    if (is_true(config_.find("add_eos_token")) && id_of(eos) >= 0)
      return unsupported("tokenizer_config.json: \"add_eos_token\" puts a token behind the text, which is not supported", "add_eos_token");
    if (const Value* add = config_.find("add_bos_token"); add != nullptr && add->is_bool()) {
      out_.prefix.clear();
      if (add->as_bool() && out_.bos >= 0) out_.prefix.push_back(out_.bos);
    }
    if (out_.bos < 0 && out_.prefix.size() == 1) out_.bos = out_.prefix[0];
    return {};
  }

  // The tokens that end or begin a text are control tokens, whatever tokenizer.json says of them.
  Status make_special(const std::string& content) {
    if (content.empty()) return {};
    if (const auto it = added_index_.find(content); it != added_index_.end()) {
      out_.added[it->second].special = true;
      return {};
    }
    AddedToken token;
    token.content = content;
    token.special = true;
    const int32_t id = out_.bpe.id_of(content);
    return id < 0 ? Status() : add(std::move(token), id);
  }
  int32_t id_of(const std::string& content) const {
    const auto it = added_index_.find(content);
    return it == added_index_.end() ? -1 : out_.added[it->second].id;
  }

  const Value& json_;
  const Value& config_;
  TokenizerParts out_;
  std::unordered_map<std::string, size_t> added_index_;  // content -> index into out_.added
  int64_t last_added_ = -1;
};

}  // namespace

Result<Tokenizer> Tokenizer::from_json(const Value& tokenizer_json, const Value& tokenizer_config) {
  ESPALIER_ASSIGN(TokenizerParts parts, JsonReader(tokenizer_json, tokenizer_config).read());
  return build(std::move(parts));
}

}  // namespace espalier
