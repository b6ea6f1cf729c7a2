// Texts that two models are compared on, and which of their positions are the assistant's.
//
// Forms      NAME.jsonl: a record a line, each a text of its own
//              a conversation   an OpenAI body, or the array of its messages; written by the model's chat template
//              {"prompt_ids": [...], "ids": [...]}   a prompt and its answer as tokens ("ids" may be left out)
//            any other name: one raw text, cut into pieces that fit the context
// Position p asks for token p + 1. It is the assistant's where that token was the assistant's to write: content, calls and the control
// token that ends the turn; of a prompt with its answer, the answer's tokens. A raw text has no such positions.
#pragma once

#include <string>
#include <vector>

#include "engine/engine_impl.h"

namespace espalier {

struct FidelityText {
  std::string name;  // "line 3", "piece 1"
  std::vector<int32_t> ids;
  std::vector<uint8_t> assistant;  // by position, one less than ids
};

struct FidelityTexts {
  std::vector<FidelityText> texts;
  std::vector<std::string> notices;  // what was cut, which turns have no known place
};

// What reads them; borrowed.
struct TextReader {
  const Tokenizer* tokenizer;
  const ChatFormat* chat;  // null: conversations are refused with `no_chat`
  std::string no_chat;
  int32_t vocabulary;  // ids of records are below it
};
TextReader text_reader(const Engine::Impl& engine);

// `context`: tokens that a text may have; longer ones end there, with a notice. Fails: no text, a line that is none (with its number),
// ids that the model does not have.
Result<FidelityTexts> read_fidelity_texts(const TextReader& reader, const std::string& text, const std::string& path, int64_t context);

}  // namespace espalier
