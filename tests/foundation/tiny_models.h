// The tiny models of tests/fixtures/models with what transformers says about them, loaded for a test.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "program/weight_set.h"
#include "units/unit.h"
#include "weights/checkpoint.h"

namespace espalier::test {

struct TinyModel {
  std::string name;
  std::string path;
  std::unique_ptr<Checkpoint> checkpoint;
  ModelPlan plan;
  WeightSet weights;
};

struct Expectation {
  std::vector<int32_t> prompt, greedy;
  std::vector<float> logits;  // (prompt + greedy, vocabulary)
};

// Names of all fixtures, or of one for each family: lfm2-f32, llama-bf16, qwen3-bf16.
std::vector<std::string> all_tiny_models();
std::vector<std::string> one_of_each_family();

// Fails the test (ADD_FAILURE) and returns an empty object when something is wrong.
TinyModel load_tiny(const std::string& name);
TinyModel load_model(const std::string& path);  // any other
Expectation load_expectation(const std::string& name);

// Rows of a chain that continues `state`, each wanting `wants`.
std::vector<Row> chain(std::span<const int32_t> tokens, int32_t first_position, uint32_t wants, int32_t sequence = 0);

// Runs a whole chain on a state and commits it; returns the logits of all rows.
std::vector<float> run_chain(Model& model, State& state, std::span<const int32_t> tokens);
// The same in calls of at most 256 rows; returns the logits of the last row only, which spares the head for the others.
std::vector<float> last_logits(Model& model, State& state, std::span<const int32_t> tokens);
// Smallest id of the largest logit.
int32_t best_id(std::span<const float> logits);

// Seeded tokens below the vocabulary.
std::vector<int32_t> random_tokens(uint64_t seed, size_t count, int32_t vocabulary);

// A small generator for tests: splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : s_(seed) {}
  uint64_t next() {
    uint64_t z = (s_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(next() % static_cast<uint64_t>(n)); }
  float number() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }  // [-1, 1)

 private:
  uint64_t s_;
};

}  // namespace espalier::test
