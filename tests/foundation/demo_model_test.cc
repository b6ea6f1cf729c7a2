// The demo model on the reference unit against transformers in fp32: greedy answers to held-out prompts
// (tools/oracle/demo_greedy.py). The fast test takes the shortest prompts, the slow one all forty.
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

// A difference is let pass only where transformers' two best logits are closer than this.
constexpr double kTie = 0.01;

struct Case {
  std::vector<int32_t> prompt, ids;
  double gap;
  size_t gap_position;
};

std::vector<int32_t> ids_of(const Value& list) {
  std::vector<int32_t> out;
  for (const Value& id : list.as_array()) out.push_back(static_cast<int32_t>(id.as_int()));
  return out;
}

std::vector<Case> cases() {
  std::vector<Case> out;
  std::ifstream file(std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/demo/greedy-40.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Value v = std::move(parse_json(line)).value();
    out.push_back({ids_of(*v.find("prompt_ids")), ids_of(*v.find("ids")), v.find_path("min_gap.gap")->as_double(),
                   static_cast<size_t>(v.find_path("min_gap.position")->as_int())});
  }
  std::sort(out.begin(), out.end(), [](const Case& a, const Case& b) { return a.prompt.size() < b.prompt.size(); });
  out.resize(std::min(out.size(), kPrompts));
  return out;
}

TEST(DemoModel, reference_greedy_answers_equal_those_of_transformers) {
  const Checkpoint checkpoint = std::move(Checkpoint::open(std::string(ESPALIER_SOURCE_DIR) + "/models/demo")).value();
  const ModelPlan plan = std::move(plan_model(checkpoint)).value();
  const WeightSet weights = std::move(bind_weights(plan, checkpoint)).value();
  const std::unique_ptr<Model> model = std::move(make_reference_unit(static_cast<int>(default_thread_count()))->compile(plan.program, weights)).value();
  const size_t v = static_cast<size_t>(plan.program.vocabulary);
  const std::vector<Case> all = cases();
  ASSERT_EQ(all.size(), kPrompts);
  for (const Case& c : all) {
    const std::unique_ptr<State> state = std::move(model->make_state()).value();
    std::vector<float> logits = run_chain(*model, *state, c.prompt);
    for (size_t k = 0; k < c.ids.size(); ++k) {
      const auto row = logits.end() - static_cast<ptrdiff_t>(v);
      const int32_t best = static_cast<int32_t>(std::max_element(row, logits.end()) - row);
      if (best != c.ids[k] && c.gap < kTie && k == c.gap_position) {
        std::printf("prompt of %zu: token %zu differs at a gap of %.4f\n", c.prompt.size(), k, c.gap);
        break;
      }
      ASSERT_EQ(best, c.ids[k]) << "prompt of " << c.prompt.size() << ", token " << k;
      logits = run_chain(*model, *state, std::span(&best, 1));
    }
  }
}

}  // namespace
}  // namespace espalier::test
