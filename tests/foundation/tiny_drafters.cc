#include "tiny_drafters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/file_map.h"
#include "weights/safetensors.h"

namespace espalier::test {
namespace {

const std::string kFolder = std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/dspark/";
constexpr std::string_view kSuffix = ".expect.safetensors";

template <typename T>
void copy(const TensorView& tensor, std::vector<T>& to) {
  to.resize(tensor.data.size() / sizeof(T));
  std::memcpy(to.data(), tensor.data.data(), tensor.data.size());
}

// The name of the target.
Result<std::string> read_expectation(const std::string& name, TinyDrafter& out) {
  ESPALIER_ASSIGN(const FileMap file, FileMap::open(kFolder + name + std::string(kSuffix)));
  ESPALIER_ASSIGN(const Safetensors parsed, parse_safetensors(file.bytes()));
  for (const TensorView& t : parsed.tensors) {
    if (t.name == "prompt_ids") copy(t, out.prompt);
    if (t.name == "drafts") copy(t, out.drafts);
    if (t.name == "anchor") std::memcpy(&out.anchor, t.data.data(), sizeof out.anchor);
    if (t.name == "hidden") copy(t, out.hidden);
    if (t.name == "base_logits") copy(t, out.base_logits);
    if (t.name == "chain_logits") copy(t, out.chain_logits);
    if (t.name == "confidence") copy(t, out.confidence);
  }
  for (const auto& [key, value] : parsed.metadata)
    if (key == "target") return value;
  return corrupt("no target is named");
}

Status load(const std::string& name, TinyDrafter& out) {
  ESPALIER_ASSIGN(const std::string target, read_expectation(name, out));
  out.target = load_tiny(target);
  ESPALIER_ASSIGN(Checkpoint checkpoint, Checkpoint::open(drafter_path(name)));
  out.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  ESPALIER_ASSIGN(out.plan, plan_drafter(*out.checkpoint, out.target.plan.program));
  ESPALIER_ASSIGN(out.weights, bind_drafter_weights(out.plan, *out.checkpoint, out.target.plan.program, out.target.weights));
  return {};
}

void run(Model& model, State& state, Call call) {
  State* states[] = {&state};
  call.states = states;
  const Result<CallStats> stats = model.run(call);
  if (!stats.ok()) ADD_FAILURE() << stats.status().message();
}

}  // namespace

std::vector<std::string> all_tiny_drafters() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kSuffix)) names.push_back(file.substr(0, file.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string drafter_path(const std::string& name) {
  const std::string path = kFolder + name;
  return std::filesystem::is_directory(path) ? path : path + ".gguf";
}

TinyDrafter load_drafter(const std::string& name) {
  TinyDrafter out;
  const Status status = load(name, out);
  if (!status.ok()) ADD_FAILURE() << name << ": " << status.message();
  return out;
}

DrafterPair compile_pair(Unit& unit, const TinyDrafter& tiny) {
  DrafterPair out;
  Result<std::unique_ptr<Model>> target = unit.compile(tiny.target.plan.program, tiny.target.weights);
  Result<std::unique_ptr<Model>> drafter = unit.compile(tiny.plan.model.program, tiny.weights);
  if (!target.ok() || !drafter.ok()) {
    ADD_FAILURE() << (target.ok() ? drafter : target).status().message();
    return out;
  }
  out.target = std::move(target).value();
  out.drafter = std::move(drafter).value();
  return out;
}

std::vector<float> tap_rows(Model& target, const DrafterPlan& plan, const std::vector<int32_t>& prompt) {
  const std::unique_ptr<State> state = target.make_state().value();
  Outputs out;
  for (int32_t layer : plan.tap_layers) out.taps.push_back({"layer." + std::to_string(layer), {}});
  const std::vector<Row> rows = chain(prompt, 0, kWantTaps);
  Call call;
  call.rows = rows;
  call.out = &out;
  run(target, *state, call);
  std::vector<float> side_by_side;
  const size_t hidden = static_cast<size_t>(plan.head.hidden);
  for (size_t r = 0; r < prompt.size(); ++r)
    for (const NamedOutput& tap : out.taps)
      side_by_side.insert(side_by_side.end(), tap.data.begin() + static_cast<ptrdiff_t>(r * hidden), tap.data.begin() + static_cast<ptrdiff_t>((r + 1) * hidden));
  return side_by_side;
}

void keep_context(Model& drafter, State& state, const std::vector<int32_t>& prompt, const std::vector<float>& taps, size_t first, size_t last) {
  const size_t width = taps.size() / prompt.size();
  const std::vector<Row> rows = chain(std::span(prompt).subspan(first, last - first), state.length(), 0);
  const NamedTensor inputs[] = {{"taps", taps.data() + first * width, static_cast<int32_t>(width)}};
  Outputs out;
  Call call;
  call.function.role = Role::context;
  call.rows = rows;
  call.inputs = inputs;
  call.out = &out;
  run(drafter, state, call);
  std::vector<int32_t> path(rows.size());
  for (size_t i = 0; i < path.size(); ++i) path[i] = static_cast<int32_t>(i);
  const Status s = state.commit(path);
  if (!s.ok()) ADD_FAILURE() << s.message();
}

DraftedBlock draft_block(Model& drafter, State& state, const DrafterPlan& plan, int32_t anchor) {
  std::vector<int32_t> tokens(static_cast<size_t>(plan.block_size), plan.mask_token);
  tokens[0] = anchor;
  const std::vector<Row> rows = chain(tokens, state.length(), kWantLogits | kWantTaps);
  Outputs out;
  out.taps.push_back({"hidden", {}});
  Call call;
  call.function.role = Role::block;
  call.rows = rows;
  call.out = &out;
  run(drafter, state, call);
  const Status s = state.commit({});
  if (!s.ok()) ADD_FAILURE() << s.message();
  return {std::move(out.logits), std::move(out.taps[0].data)};
}

}  // namespace espalier::test
