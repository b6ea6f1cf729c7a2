#include "engine/text_model.h"

namespace espalier {

Result<Tokenizer> open_tokenizer(const Checkpoint& checkpoint) {
  Status missing(Code::not_found, checkpoint.path() + ": there is no tokenizer.json; copy it from where the model came from");
  if (checkpoint.tokenizer().is_null()) return missing;
  auto tokenizer = checkpoint.has_gguf_metadata() && &checkpoint.tokenizer() == &checkpoint.config()
                       ? Tokenizer::from_gguf(checkpoint.tokenizer())
                       : Tokenizer::from_json(checkpoint.tokenizer(), checkpoint.tokenizer_config());
  if (!tokenizer.ok()) return std::move(tokenizer).status().with_context(checkpoint.path());
  return tokenizer;
}

Result<TextModel> open_text_model(const std::string& path) {
  ESPALIER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open_tokenizer_only(path));
  ESPALIER_ASSIGN(Tokenizer tokenizer, open_tokenizer(checkpoint));
  auto chat = ChatFormat::make(checkpoint, tokenizer);
  TextModel model{std::move(tokenizer), std::nullopt, {}};
  if (chat.ok())
    model.chat.emplace(std::move(chat).value());
  else
    model.no_chat = chat.status().message();
  return model;
}

}  // namespace espalier
