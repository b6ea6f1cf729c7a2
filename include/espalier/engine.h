// Espalier for C++ callers: open a model, ask it.
//
//   auto engine = espalier::Engine::open({.model = "LFM2-350M"});
//   auto request = engine->request({.messages = R"([{"role":"user","content":"Hello"}])"}, {.temperature = 0});
//   auto answer = request->run({.on_delta = [](const espalier::Delta& d) { std::cout << d.text; }});
//
// Every call that can fail returns a Result or a Status with a sentence; nothing is printed and nothing throws.
// C callers include espalier/espalier.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/request.h"
#include "espalier/status.h"

namespace espalier {

const char* version();  // "0.1.0"

struct OpenOptions {
  std::string model;           // a folder (Hugging Face, MLX, converted) or a .gguf file
  std::string unit = "cpu";    // "cpu" | "reference" | "static" | "static:coreai"
  std::string buckets;         // of the static unit: K/V lengths that its programs have, "128,512"; empty: powers of two to the context
  std::string weights = "auto";  // "auto" | "int8" | "int4" | "file" (static unit: also "palette2" | 4 | 6 | 8); the reference unit runs fp32
  std::string kv = "fp16";     // "fp16" | "int8"; the reference unit keeps fp32
  uint32_t threads = 0;        // 0: what affinity and the cgroup allow
  int64_t context = 0;         // tokens; 0: what the model was made for
  std::string speculate = "auto";  // of requests that say nothing else: "auto" | "off" | "chain:N" | "tree:N"
  std::string drafter;         // a folder or a .gguf file; empty: drafter/ beside the model, where there is one and speculate is not "off"
  bool cache = true;           // keep the packed weights in the cache folder, and take them from there
  // Packing of weights, in bytes. Returning false ends the opening with Code::cancelled.
  std::function<bool(uint64_t done, uint64_t total)> on_progress;
  std::string activations = "fp16";  // "fp16" | "int8": what matrix products of the static unit read; int8 is there to be measured
};

// What an open engine is.
struct EngineInfo {
  std::string model;
  std::string family;
  std::string unit;     // "cpu"
  std::string kernels;  // "portable" | "avx2" | "avx_vnni" | "avx512_vnni" | "amx_int8" | "neon_dotprod"
  std::string weights;  // the form that the matrices have
  std::string kv;
  std::string drafter;  // its path; empty without one
  std::string profile;  // measured times that `auto` starts from; empty: it starts from two ceilings
  uint32_t threads = 0;
  int32_t vocabulary = 0;
  int64_t context = 0;   // tokens that a text may have
  uint64_t weight_bytes = 0;
  double load_ms = 0;
  bool can_chat = false;  // there is a chat template
  std::vector<std::string> notices;
};

// One score of a text's token: what the model gave it.
using Score = TokenLogprob;

class Request;
class Conversation;

// A model on a unit with one thread team. Any thread may use it; calls of the model take turns. A handle: copies share the
// engine, which lives until the last of them, and of its requests and conversations, is gone.
class Engine {
 public:
  // Cost: seconds where weights have to be packed first, then what mapping the file costs.
  static Result<Engine> open(const OpenOptions& options);

  const EngineInfo& info() const;

  // Checks everything and reads the prompt; nothing has run yet. Fails with the field at fault: a prompt longer than the
  // context is an error with both numbers.
  Result<Request> request(const Prompt& prompt, const GenerateOptions& options) const;

  // Runs requests of this engine together, at most `sequences` at a time: their rows share the model's calls. Each answer is
  // the one that run() gives. Blocks until all are done; `done` gets each as it completes, with its place in `requests`.
  void run_together(std::span<Request> requests, int32_t sequences, const std::function<void(size_t index, Result<Answer> answer)>& done) const;

  // A chat that keeps what it has read. `tools`: JSON, or empty.
  Result<Conversation> conversation(const std::string& tools = {}) const;

  // The prompt of a conversation as text.
  Result<std::string> render(const Prompt& prompt) const;
  Result<std::vector<int32_t>> tokenize(std::string_view text, bool special, bool add_bos = false) const;
  std::string detokenize(std::span<const int32_t> ids) const;
  // The bytes of one token, which may be a part of a character.
  std::string token_bytes(int32_t id) const;

  // Teacher-forced: what the model gives each token but the first, with `alternatives` of the best at its place.
  // `on_progress` may return false: Code::cancelled.
  Result<std::vector<Score>> score(std::span<const int32_t> ids, int32_t alternatives,
                                   const std::function<bool(int64_t done, int64_t total)>& on_progress = {}) const;

  // The answer as one JSON object, the same for every front end.
  std::string to_json(const Answer& answer, int indent = 0) const;

  struct Impl;  // of the library's own rooms
  explicit Engine(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// One answer in the making. Runs once, on one thread at a time; cancel from any thread.
class Request {
 public:
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  // Blocks until the answer is complete. A cancelled request returns what it has, finish_reason cancelled.
  Result<Answer> run(const Callbacks& callbacks = {});
  // Takes effect between two calls of the model. Safe from any thread and from a signal handler; more than once, too.
  void cancel();
  const std::vector<int32_t>& prompt_ids() const;

  struct Impl;  // of the library's own rooms
  explicit Request(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// A chat. Keeps the messages and the model's state; a turn runs only what is new. Assistant turns stay the very tokens that
// were generated. One thread at a time; cancel from any.
class Conversation {
 public:
  Conversation(Conversation&&) noexcept;
  Conversation& operator=(Conversation&&) noexcept;
  ~Conversation();

  void set_system(const std::string& text);  // empty: none. The next turn reads the text anew from where it differs.
  // Appends a user message, generates the answer and appends it. A failed turn leaves the conversation as it was.
  Result<Answer> ask(const std::string& user, const GenerateOptions& options, const Callbacks& callbacks = {});
  // Appends a message as JSON (a tool's result) without an answer.
  Status add_message(const std::string& message_json);
  void cancel();  // as Request::cancel, of the turn that runs
  std::string messages() const;  // JSON: an array

  struct Impl;  // of the library's own rooms
  explicit Conversation(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
