// From a public Prompt to token ids.
#pragma once

#include "engine/engine_impl.h"

namespace espalier {

struct ReadPrompt {
  std::vector<int32_t> ids;
  bool is_chat = false;
  bool in_thought = false;
  Value tools;
  std::vector<std::string> warnings;
};

// Fails with the field: messages, tools, template_kwargs, prompt.
Result<ReadPrompt> read_prompt(const Engine::Impl& engine, const Prompt& prompt);
Result<RenderedChat> render_prompt(const ChatFormat& chat, const Prompt& prompt);

// JSON texts as the template wants them. Empty text: null.
Result<Value> parse_messages(const std::string& json);
Result<Value> parse_tools(const std::string& json);
Result<Value> parse_kwargs(const std::string& json);

}  // namespace espalier
