// The prompts of benches that generate: lines of JSON, and what is asked of them.
#pragma once

#include <string>
#include <vector>

#include "engine/generation.h"

namespace espalier {

// One prompt a line: an OpenAI body as `run --jsonl` takes (its own options are not read: the bench sets them), or an object
// with "prompt_ids". Empty lines are skipped. Fails with the line's number. `where`: the file, for the status.
Result<std::vector<ReadPrompt>> read_bench_prompts(const Engine::Impl& engine, const std::string& text, const std::string& where);

// `ends`: end tokens end the answer; otherwise only the number of tokens does.
Result<PreparedRequest> bench_request(const Engine::Impl& engine, const ReadPrompt& prompt, double temperature, int64_t max_tokens, uint64_t seed,
                                      bool ends = true);

}  // namespace espalier
