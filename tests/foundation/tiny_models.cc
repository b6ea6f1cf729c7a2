#include "tiny_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/file_map.h"
#include "weights/safetensors.h"

namespace espalier::test {
namespace {

const std::string kFolder = std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/models/";

std::string model_path(const std::string& name) {
  if (std::filesystem::is_directory(kFolder + name)) return kFolder + name;
  if (std::filesystem::exists(kFolder + name + ".gguf")) return kFolder + name + ".gguf";
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(name + "-00001-of-")) return entry.path().string();
  }
  return kFolder + name;
}

}  // namespace

std::vector<std::string> all_tiny_models() {
  constexpr std::string_view kSuffix = ".expect.safetensors";
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kSuffix) && !file.starts_with("smollm2")) names.push_back(file.substr(0, file.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> one_of_each_family() { return {"lfm2-f32", "llama-bf16", "qwen3-bf16"}; }

TinyModel load_tiny(const std::string& name) { return load_model(model_path(name)); }

TinyModel load_model(const std::string& path) {
  TinyModel out;
  const std::string name = std::filesystem::path(path).stem().string();
  out.name = name;
  out.path = path;
  Result<Checkpoint> checkpoint = Checkpoint::open(out.path);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << name << ": " << checkpoint.status().message();
    return out;
  }
  out.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint).value());
  Result<ModelPlan> plan = plan_model(*out.checkpoint);
  if (!plan.ok()) {
    ADD_FAILURE() << name << ": " << plan.status().message();
    return out;
  }
  out.plan = std::move(plan).value();
  Result<WeightSet> weights = bind_weights(out.plan, *out.checkpoint);
  if (!weights.ok()) {
    ADD_FAILURE() << name << ": " << weights.status().message();
    return out;
  }
  out.weights = std::move(weights).value();
  return out;
}

Expectation load_expectation(const std::string& name) {
  Expectation out;
  Result<FileMap> file = FileMap::open(kFolder + name + ".expect.safetensors");
  if (!file.ok()) {
    ADD_FAILURE() << file.status().message();
    return out;
  }
  Result<Safetensors> tensors = parse_safetensors(file->bytes());
  if (!tensors.ok()) {
    ADD_FAILURE() << tensors.status().message();
    return out;
  }
  for (const TensorView& t : tensors->tensors) {
    void* to = nullptr;
    if (t.name == "prompt_ids") out.prompt.resize(t.data.size() / 4), to = out.prompt.data();
    if (t.name == "greedy_ids") out.greedy.resize(t.data.size() / 4), to = out.greedy.data();
    if (t.name == "logits") out.logits.resize(t.data.size() / 4), to = out.logits.data();
    if (to != nullptr) std::memcpy(to, t.data.data(), t.data.size());
  }
  return out;
}

std::vector<Row> chain(std::span<const int32_t> tokens, int32_t first_position, uint32_t wants, int32_t sequence) {
  std::vector<Row> rows;
  for (size_t i = 0; i < tokens.size(); ++i)
    rows.push_back({tokens[i], sequence, first_position + static_cast<int32_t>(i), i == 0 ? kState : static_cast<int32_t>(i) - 1, wants});
  return rows;
}

namespace {

std::vector<float> run_and_commit(Model& model, State& state, std::span<const Row> rows) {
  State* states[] = {&state};
  Outputs out;
  Call call;
  call.rows = rows;
  call.states = states;
  call.out = &out;
  Result<CallStats> stats = model.run(call);
  if (!stats.ok()) ADD_FAILURE() << stats.status().message();
  std::vector<int32_t> path(rows.size());
  for (size_t i = 0; i < path.size(); ++i) path[i] = static_cast<int32_t>(i);
  if (Status s = state.commit(path); !s.ok()) ADD_FAILURE() << s.message();
  return out.logits;
}

}  // namespace

std::vector<float> run_chain(Model& model, State& state, std::span<const int32_t> tokens) {
  return run_and_commit(model, state, chain(tokens, state.length(), kWantLogits));
}

std::vector<float> last_logits(Model& model, State& state, std::span<const int32_t> tokens) {
  constexpr size_t kRows = 256;
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size(); begin += kRows) {
    std::vector<Row> rows = chain(tokens.subspan(begin, std::min(kRows, tokens.size() - begin)), state.length(), 0);
    if (begin + rows.size() == tokens.size()) rows.back().wants = kWantLogits;
    logits = run_and_commit(model, state, rows);
  }
  return logits;
}

int32_t best_id(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<int32_t> random_tokens(uint64_t seed, size_t count, int32_t vocabulary) {
  Random random(seed);
  std::vector<int32_t> out(count);
  for (int32_t& t : out) t = random.below(vocabulary);
  return out;
}

}  // namespace espalier::test
