// The demo model on the reference unit against others that ran it greedily on held-out prompts: transformers in fp32
// (tools/oracle/demo_greedy.py) and llama.cpp on the BF16 GGUF file of tools/export-gguf (tools/oracle/demo_llama_cpp.py).
// The fast test takes the shortest prompts, the slow one all forty.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "base/thread_team.h"
#include "models/model.h"
#include "tiny_models.h"
#include "units/reference/reference.h"

namespace espalier::test {
namespace {

#ifdef ESPALIER_ALL_PROMPTS
constexpr size_t kPrompts = 40;
#else
constexpr size_t kPrompts = 5;
#endif

// A difference is let pass only where the other's two best logits are closer than this.
constexpr double kTie = 0.01;

struct Answer {
  const char* by;
  std::vector<int32_t> ids;
  double gap = 0;  // smallest difference of the two best logits, and the token where it is
  size_t gap_position = 0;
};

struct Case {
  std::vector<int32_t> prompt;
  std::vector<Answer> answers;
};

std::vector<int32_t> ids_of(const Value& list) {
  std::vector<int32_t> out;
  for (const Value& id : list.as_array()) out.push_back(static_cast<int32_t>(id.as_int()));
  return out;
}

std::vector<Value> lines_of(const char* name) {
  std::vector<Value> out;
  std::ifstream file(std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/demo/" + name);
  for (std::string line; std::getline(file, line);) out.push_back(std::move(parse_json(line)).value());
  return out;
}

Answer answer_of(const char* by, const Value& v) {
  return {by, ids_of(*v.find("ids")), v.find_path("min_gap.gap")->as_double(), static_cast<size_t>(v.find_path("min_gap.position")->as_int())};
}

std::vector<Case> cases() {
  const std::vector<Value> transformers = lines_of("greedy-40.jsonl"), llama_cpp = lines_of("llama-cpp-bf16-40.jsonl");
  EXPECT_EQ(transformers.size(), llama_cpp.size());
  std::vector<Case> out;
  for (size_t i = 0; i < std::min(transformers.size(), llama_cpp.size()); ++i)
    out.push_back({ids_of(*transformers[i].find("prompt_ids")), {answer_of("transformers", transformers[i]), answer_of("llama.cpp", llama_cpp[i])}});
  std::sort(out.begin(), out.end(), [](const Case& a, const Case& b) { return a.prompt.size() < b.prompt.size(); });
  out.resize(std::min(out.size(), kPrompts));
  return out;
}

constexpr int32_t kEnds[] = {7, 2};  // <|im_end|>, <|endoftext|>: eos_token_id of the generation config

std::vector<int32_t> greedy(Model& model, std::span<const int32_t> prompt, size_t tokens) {
  const std::unique_ptr<State> state = std::move(model.make_state()).value();
  std::vector<int32_t> out;
  std::vector<float> logits = last_logits(model, *state, prompt);
  while (!logits.empty()) {
    out.push_back(best_id(logits));
    if (out.size() == tokens || std::ranges::count(kEnds, out.back()) > 0) break;
    logits = last_logits(model, *state, std::span(&out.back(), 1));
  }
  return out;
}

TEST(DemoModel, reference_greedy_answers_equal_those_of_transformers_and_llama_cpp) {
  const Checkpoint checkpoint = std::move(Checkpoint::open(std::string(ESPALIER_SOURCE_DIR) + "/models/demo")).value();
  const ModelPlan plan = std::move(plan_model(checkpoint)).value();
  const WeightSet weights = std::move(bind_weights(plan, checkpoint)).value();
  const std::unique_ptr<Model> model = std::move(make_reference_unit(static_cast<int>(default_thread_count()))->compile(plan.program, weights)).value();
  const std::vector<Case> all = cases();
  ASSERT_EQ(all.size(), kPrompts);
  for (const Case& c : all) {
    const std::vector<int32_t> found = greedy(*model, c.prompt, 64);
    for (const Answer& a : c.answers) {
      const size_t k = static_cast<size_t>(std::mismatch(found.begin(), found.end(), a.ids.begin(), a.ids.end()).first - found.begin());
      if (found == a.ids) continue;
      if (k == a.gap_position && a.gap < kTie) {
        std::printf("prompt of %zu: token %zu differs from %s at a gap of %.4f\n", c.prompt.size(), k, a.by, a.gap);
      } else {
        ADD_FAILURE() << "prompt of " << c.prompt.size() << ": token " << k << " differs from " << a.by << "; its smallest gap is "
                      << a.gap << " at token " << a.gap_position;
      }
    }
  }
}

}  // namespace
}  // namespace espalier::test
