// What the page of include/espalier/engine.h promises, with nothing but the installed headers.
#include <espalier/engine.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto engine = espalier::Engine::open({.model = argv[1], .threads = 1});
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.status().message().c_str()), 1;
  auto refused = engine->request({.raw = "x"}, {.temperature = -1});
  if (refused.ok() || refused.status().field() != "temperature") return 3;
  auto request = engine->request({.raw = "hello"}, {.temperature = 0, .max_tokens = 6});
  if (!request.ok()) return 4;
  std::string streamed;
  auto answer = request->run({.on_delta = [&](const espalier::Delta& d) { streamed += d.text; }});
  if (!answer.ok() || streamed != answer->text || answer->timings.prefill_tokens == 0) return 5;
  for (const int id : answer->token_ids) std::printf("%d ", id);
  std::printf("%s %s\n", espalier::finish_reason_name(answer->finish_reason), espalier::version());
  auto cancelled = engine->request({.raw = "hello"}, {.temperature = 0});
  cancelled->cancel();
  return cancelled->run()->finish_reason == espalier::FinishReason::cancelled ? 0 : 6;
}
