#include "engine/drafter.h"

#include <sys/stat.h>

#include <numeric>

namespace espalier {
namespace {

bool is_folder(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

Drafter::Drafter(std::string from, Checkpoint c, DrafterPlan p)
    : path(std::move(from)), checkpoint(std::move(c)), plan(std::move(p)), head(plan.head) {
  for (const int32_t layer : plan.tap_layers) taps.push_back("layer." + std::to_string(layer));
}

std::string find_drafter(const std::string& model) {
  std::string folder = model;
  if (!is_folder(model)) {
    const size_t cut = model.rfind('/');
    folder = cut == std::string::npos ? "." : model.substr(0, cut);
  }
  folder += (folder.ends_with('/') ? "" : "/") + std::string("drafter");
  return is_folder(folder) ? folder : std::string();
}

Result<std::unique_ptr<Drafter>> plan_drafter_at(const std::string& path, const Program& target) {
  ESPALIER_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
  ESPALIER_ASSIGN(DrafterPlan plan, plan_drafter(checkpoint, target));
  return std::make_unique<Drafter>(path, std::move(checkpoint), std::move(plan));
}

Status run_context(Drafter& drafter, std::span<const DrafterRows> sequences) {
  std::vector<Row> rows;
  std::vector<State*> states;
  std::vector<float> joined;
  const size_t width = drafter.taps.size() * static_cast<size_t>(drafter.plan.model.program.hidden);
  const float* features = sequences[0].features;
  for (const DrafterRows& s : sequences) {
    const int32_t first = static_cast<int32_t>(rows.size()), held = s.state->length();
    for (size_t i = 0; i < s.tokens.size(); ++i) {
      const int32_t n = static_cast<int32_t>(i);
      rows.push_back({s.tokens[i], static_cast<int32_t>(states.size()), held + n, n == 0 ? kState : first + n - 1, 0});
    }
    states.push_back(s.state);
    if (sequences.size() > 1) joined.insert(joined.end(), s.features, s.features + s.tokens.size() * width);
  }
  if (sequences.size() > 1) features = joined.data();
  const NamedTensor taps[] = {{"taps", features, static_cast<int32_t>(width)}};
  Outputs out;
  ESPALIER_ASSIGN([[maybe_unused]] const CallStats stats, drafter.model->run({{Role::context, kNone}, rows, states, taps, 0, &out}));
  int32_t first = 0;
  for (const DrafterRows& s : sequences) {
    std::vector<int32_t> path(s.tokens.size());
    std::iota(path.begin(), path.end(), first);
    ESPALIER_TRY(s.state->commit(path));
    first += static_cast<int32_t>(path.size());
  }
  return {};
}

Status run_block(Drafter& drafter, std::span<const DrafterRows> roots, Outputs& out) {
  std::vector<Row> rows;
  std::vector<State*> states;
  for (const DrafterRows& s : roots) {
    const int32_t held = s.state->length(), index = static_cast<int32_t>(states.size());
    for (int32_t i = 0; i < drafter.plan.block_size; ++i) {
      const int32_t parent = i == 0 ? kState : static_cast<int32_t>(rows.size()) - 1;
      rows.push_back({i == 0 ? s.tokens.back() : drafter.plan.mask_token, index, held + i, parent, kWantLogits | kWantLse | kWantTaps});
    }
    states.push_back(s.state);
  }
  ESPALIER_ASSIGN([[maybe_unused]] const CallStats stats, drafter.model->run({{Role::block, kNone}, rows, states, {}, 0, &out}));
  return {};
}

}  // namespace espalier
