// Several sequences in one decoder give what each gives alone, whatever arrives when.
#include "engine/decoder.h"

#include <gtest/gtest.h>

#include <map>

#include "../../tests/foundation/tiny_models.h"
#include "units/cpu/cpu_unit.h"
#include "units/reference/reference.h"

namespace espalier {
namespace {

struct Ask {
  std::vector<int32_t> prompt;
  Sampling rules;
  int32_t logprobs;
  int arrives, tokens;
};

std::vector<Ask> asks() {
  std::vector<Ask> list;
  for (int i = 0; i < 5; ++i) {
    Ask a;
    for (int t = 0; t < 1 + i * 9; ++t) a.prompt.push_back(3 + (t * 31 + i * 17) % 250);
    a.rules.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    a.rules.top_k = i == 3 ? 7 : 0;
    a.rules.frequency_penalty = i == 4 ? 0.5f : 0.0f;
    a.rules.seed = static_cast<uint64_t>(100 + i);
    a.logprobs = i == 1 ? 3 : i == 2 ? 0 : -1;
    a.arrives = i * 2 % 5;
    a.tokens = 6 + i;
    list.push_back(std::move(a));
  }
  return list;
}

struct Got {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  bool operator==(const Got&) const = default;
};

// All of `wanted` in one decoder, each arriving at its step; chunks of at most `rows`.
std::vector<Got> decode(Model& model, const std::vector<Ask>& wanted, int32_t rows) {
  Decoder decoder(model);
  std::vector<Got> got(wanted.size());
  std::vector<std::unique_ptr<State>> states(wanted.size());
  std::map<SequenceId, size_t> open;
  size_t done = 0;
  for (int step = 0; done < wanted.size(); ++step) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].arrives != step) continue;
      states[i] = std::move(model.make_state()).value();
      auto id = decoder.open(states[i].get(), wanted[i].prompt, static_cast<int32_t>(wanted[i].prompt.size()), wanted[i].rules, wanted[i].logprobs);
      EXPECT_TRUE(id.ok()) << id.status().message();
      open[*id] = i;
    }
    if (decoder.idle()) continue;
    auto report = decoder.step(rows);
    EXPECT_TRUE(report.ok()) << report.status().message();
    if (!report.ok()) return got;
    for (const DrawnToken& token : report->drawn) {
      const size_t i = open.at(token.sequence);
      got[i].ids.push_back(token.id);
      if (wanted[i].logprobs >= 0) got[i].logprobs.push_back(token.logprobs.logprob);
      EXPECT_EQ(token.logprobs.top.size(), static_cast<size_t>(std::max(wanted[i].logprobs, 0)));
      EXPECT_EQ(token.position, static_cast<int32_t>(wanted[i].prompt.size() + got[i].ids.size()) - 1);
      if (static_cast<int>(got[i].ids.size()) < wanted[i].tokens) continue;
      decoder.close(token.sequence);
      ++done;
    }
  }
  return got;
}

TEST(Decoder, sequences_that_share_calls_give_what_each_gives_alone) {
  const std::vector<Ask> wanted = asks();
  for (const std::string& name : test::one_of_each_family()) {
    const test::TinyModel tiny = test::load_tiny(name);
    const std::unique_ptr<Unit> cpu = std::move(CpuUnit::make({2, KvType::f16, {}})).value(), reference = make_reference_unit();
    for (Unit* unit : {cpu.get(), reference.get()}) {
      const std::unique_ptr<Model> model = std::move(unit->compile(tiny.plan.program, tiny.weights)).value();
      std::vector<Got> alone;
      for (Ask ask : wanted) {
        ask.arrives = 0;
        alone.push_back(decode(*model, {ask}, 512)[0]);
      }
      for (const int32_t rows : {1, 5, 512}) EXPECT_EQ(decode(*model, wanted, rows), alone) << name << " on " << unit->describe().name << ", " << rows;
    }
  }
}

TEST(Decoder, a_state_that_holds_something_else_is_refused) {
  const test::TinyModel tiny = test::load_tiny("lfm2-f32");
  const std::unique_ptr<Unit> unit = make_reference_unit();
  const std::unique_ptr<Model> model = std::move(unit->compile(tiny.plan.program, tiny.weights)).value();
  const std::unique_ptr<State> state = std::move(model->make_state()).value();
  Decoder decoder(*model);
  auto id = decoder.open(state.get(), {5, 6, 7}, 3, {}, -1);
  ASSERT_TRUE(id.ok() && decoder.step(16).ok());
  decoder.close(*id);
  EXPECT_FALSE(decoder.open(state.get(), {5, 6, 8, 9}, 4, {}, -1).ok());
  EXPECT_FALSE(decoder.open(state.get(), {5, 6, 7}, 3, {}, -1).ok());  // nothing left to run
  EXPECT_TRUE(decoder.open(state.get(), {5, 6, 7, 8}, 4, {}, -1).ok());
}

}  // namespace
}  // namespace espalier
