// Text <-> token ids, as the tokenizer file of a model says: byte-level BPE with the file's own split rules.
//
// The oracle is the Python package `tokenizers`: for every text the ids are equal, but for one deliberate difference:
// a special token never comes out of ordinary text, not even where the reference's merges could spell one.
// What would change ids and is not implemented is refused by its name when the file is read.
//
// A Tokenizer is a handle to immutable data: cheap to copy, safe to use from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "espalier/status.h"
#include "text/marked_text.h"

namespace espalier {

struct TokenizerParts;

struct EncodeOptions {
  bool special = false;  // raw text only: read the spelling of control tokens as these tokens
  bool add_bos = false;  // put in front what the file's own rule puts there (see add_bos)
};

class Tokenizer {
 public:
  // `tokenizer_config` (tokenizer_config.json) may be null; of it bos_token, eos_token and add_bos_token are read.
  // The fields "truncation" and "padding" are ignored, as they are when a model is run.
  static Result<Tokenizer> from_json(const Value& tokenizer_json, const Value& tokenizer_config);
  // An object with the keys tokenizer.ggml.* of a GGUF file.
  static Result<Tokenizer> from_gguf(const Value& metadata);

  // Fails: text that is not valid UTF-8 (with the place), longer than 1 GiB, or too costly for the file's split regex.
  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;
  // A rendered template: control tokens come from its control bytes only; `special` is not read.
  Result<std::vector<int32_t>> encode(const MarkedText& text, EncodeOptions options = {}) const;

  // The bytes that a token stands for; of an added token its text. Empty for an id that is none. Borrowed from *this.
  std::string_view token_bytes(int32_t id) const;
  // Ids that are no tokens are left out; bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  bool is_token(int32_t id) const;
  bool is_special(int32_t id) const;  // a control token: never made from data, not part of an answer's text
  bool is_control(int32_t id) const { return is_special(id); }
  // The token of that text ("<|im_end|>") or of that spelling in the file ("Ġthe"); -1: none.
  int32_t id_of(std::string_view token) const;
  // One more than the largest id; a model may have more rows than that.
  int32_t vocab_size() const;

  int32_t bos_id() const;                        // -1: none named
  const std::vector<int32_t>& eos_ids() const;  // as the tokenizer's files name them; generation_config may add others
  // Whether the file's rule puts something (nearly always bos_id) in front of raw text.
  bool add_bos() const;
  const std::vector<int32_t>& prefix_ids() const;  // what it puts there

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  static Result<Tokenizer> build(TokenizerParts parts);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace espalier
