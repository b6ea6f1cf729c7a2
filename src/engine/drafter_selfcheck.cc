#include "engine/drafter_selfcheck.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/file_map.h"
#include "base/json.h"
#include "decode/markov_head.h"
#include "weights/config_reader.h"

namespace espalier {
namespace {

constexpr const char* kFile = "selfcheck.json";
constexpr size_t kPromptMax = 4096;

struct Selfcheck {
  std::vector<int32_t> prompt, drafts;
  int32_t anchor = 0;
  struct Slot {
    std::vector<int32_t> ids;
    std::vector<double> logits;
    double lse = 0;
  };
  std::vector<Slot> slots;
};

std::vector<int32_t> narrow(const std::vector<int64_t>& from) { return {from.begin(), from.end()}; }

Result<std::vector<double>> numbers(ConfigReader& c, std::string_view key, size_t size) {
  const Value* list = c.raw(key);
  if (list == nullptr || !list->is_array() || list->as_array().size() != size)
    return c.error(key, "expected a list of " + std::to_string(size) + " numbers");
  std::vector<double> out;
  for (const Value& v : list->as_array()) {
    if (!v.is_number()) return c.error(key, "expected numbers, found " + kind_of(v));
    out.push_back(v.as_double());
  }
  return out;
}

Result<Selfcheck> read(const Value& file, const DrafterPlan& plan) {
  ConfigReader c(file, kFile);
  const int32_t last_id = plan.head.vocabulary - 1;
  const size_t slots = static_cast<size_t>(plan.block_size);
  Selfcheck out;
  ESPALIER_ASSIGN(const std::vector<int64_t> prompt, c.required_ints("prompt_ids", 0, 0, last_id));
  if (prompt.empty() || prompt.size() > kPromptMax) return c.error("prompt_ids", "expected 1 to " + std::to_string(kPromptMax) + " ids, found " + std::to_string(prompt.size()));
  ESPALIER_ASSIGN(const int64_t anchor, c.required_int("anchor", 0, last_id));
  ESPALIER_ASSIGN(const std::vector<int64_t> drafts, c.required_ints("drafts", slots, 0, last_id));
  ESPALIER_ASSIGN(const std::vector<double> lse, numbers(c, "base_logits_logsumexp", slots));
  out.prompt = narrow(prompt);
  out.anchor = static_cast<int32_t>(anchor);
  out.drafts = narrow(drafts);
  const Value* tops = c.raw("base_logits_top");
  if (tops == nullptr || !tops->is_array() || tops->as_array().size() != slots) return c.error("base_logits_top", "expected a list of " + std::to_string(slots) + " slots");
  for (size_t i = 0; i < slots; ++i) {
    ConfigReader slot(tops->as_array()[i], std::string(kFile) + ": base_logits_top");
    ESPALIER_ASSIGN(const std::vector<int64_t> ids, slot.required_ints("ids", 0, 0, last_id));
    if (ids.empty()) return slot.error("ids", "expected at least one id");
    ESPALIER_ASSIGN(std::vector<double> logits, numbers(slot, "logits", ids.size()));
    out.slots.push_back({narrow(ids), std::move(logits), lse[i]});
  }
  return out;
}

Status run_and_keep(Model& model, State& state, Call call) {
  State* states[] = {&state};
  call.states = states;
  ESPALIER_ASSIGN([[maybe_unused]] const CallStats stats, model.run(call));
  return {};
}

std::vector<Row> chain(const std::vector<int32_t>& tokens, int32_t position, uint32_t wants) {
  std::vector<Row> rows;
  for (size_t i = 0; i < tokens.size(); ++i)
    rows.push_back({tokens[i], 0, position + static_cast<int32_t>(i), i == 0 ? kState : static_cast<int32_t>(i) - 1, wants});
  return rows;
}

// The tapped streams of the prompt side by side: (rows, taps * hidden).
Result<std::vector<float>> tapped(Model& target, const DrafterPlan& plan, const std::vector<int32_t>& prompt) {
  ESPALIER_ASSIGN(const std::unique_ptr<State> state, target.make_state());
  Outputs out;
  for (int32_t layer : plan.tap_layers) out.taps.push_back({"layer." + std::to_string(layer), {}});
  const std::vector<Row> rows = chain(prompt, 0, kWantTaps);
  Call call;
  call.rows = rows;
  call.out = &out;
  ESPALIER_TRY(run_and_keep(target, *state, call));
  const size_t hidden = static_cast<size_t>(plan.head.hidden), taps = out.taps.size();
  std::vector<float> side_by_side(prompt.size() * taps * hidden);
  for (size_t t = 0; t < taps; ++t)
    for (size_t r = 0; r < prompt.size(); ++r)
      std::copy_n(out.taps[t].data.begin() + static_cast<ptrdiff_t>(r * hidden), hidden, side_by_side.begin() + static_cast<ptrdiff_t>((r * taps + t) * hidden));
  return side_by_side;
}

// Base logits of the slots, and "hidden".
Result<Outputs> draft(Model& target, Model& drafter, const DrafterPlan& plan, const Selfcheck& check) {
  ESPALIER_ASSIGN(const std::vector<float> taps, tapped(target, plan, check.prompt));
  ESPALIER_ASSIGN(const std::unique_ptr<State> state, drafter.make_state());
  const NamedTensor inputs[] = {{"taps", taps.data(), static_cast<int32_t>(taps.size() / check.prompt.size())}};
  Outputs out;
  Call context;
  context.function.role = Role::context;
  const std::vector<Row> rows = chain(check.prompt, 0, 0);
  context.rows = rows;
  context.inputs = inputs;
  context.out = &out;
  ESPALIER_TRY(run_and_keep(drafter, *state, context));
  std::vector<int32_t> path(rows.size());
  for (size_t i = 0; i < path.size(); ++i) path[i] = static_cast<int32_t>(i);
  ESPALIER_TRY(state->commit(path));

  std::vector<int32_t> block(static_cast<size_t>(plan.block_size), plan.mask_token);
  block[0] = check.anchor;
  const std::vector<Row> block_rows = chain(block, state->length(), kWantLogits | kWantLse | kWantTaps);
  Call call;
  call.function.role = Role::block;
  call.rows = block_rows;
  out.taps.push_back({"hidden", {}});
  call.out = &out;
  ESPALIER_TRY(run_and_keep(drafter, *state, call));
  return out;
}

int32_t equal_drafts(const DrafterPlan& plan, const Selfcheck& check, const Outputs& out) {
  const MarkovHead markov(plan.head);
  const size_t vocabulary = static_cast<size_t>(plan.head.vocabulary), hidden = static_cast<size_t>(plan.head.hidden);
  std::vector<float> logits(vocabulary);
  MarkovHead::Lead before, lead;
  int32_t token = check.anchor;
  for (size_t slot = 0; slot < check.drafts.size(); ++slot) {
    markov.lead(token, std::span(out.taps[0].data).subspan(slot * hidden, hidden), slot == 0 ? nullptr : &before, lead);
    markov.bias(lead, logits);
    for (size_t v = 0; v < vocabulary; ++v) logits[v] += out.logits[slot * vocabulary + v];
    token = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (token != check.drafts[slot]) return static_cast<int32_t>(slot);
    std::swap(before, lead);
  }
  return static_cast<int32_t>(check.drafts.size());
}

double logit_error(const Selfcheck& check, const Outputs& out) {
  const size_t vocabulary = out.logits.size() / check.slots.size();
  double error = 0, size = 0;
  for (size_t s = 0; s < check.slots.size(); ++s) {
    const Selfcheck::Slot& slot = check.slots[s];
    const double n = static_cast<double>(slot.ids.size());
    double mean = 0, differences = 0;
    for (double l : slot.logits) mean += l / n;
    for (size_t i = 0; i < slot.ids.size(); ++i) {
      const double d = slot.logits[i] - static_cast<double>(out.logits[s * vocabulary + static_cast<size_t>(slot.ids[i])]);
      differences += d * d;
      size += (slot.logits[i] - mean) * (slot.logits[i] - mean) / n;
    }
    const double d = slot.lse - static_cast<double>(out.lse[s]);
    error += (differences + d * d) / (n + 1);
  }
  return std::sqrt(error / std::max(size, 1e-12));
}

std::string two_digits(double x) {
  char text[32];  // without the locale
  return {text, std::to_chars(text, text + sizeof text, x, std::chars_format::general, 2).ptr};
}

}  // namespace

Result<SelfcheckReport> run_selfcheck(const Value& file, Model& target, Model& drafter, const DrafterPlan& plan) {
  ESPALIER_ASSIGN(const Selfcheck check, read(file, plan));
  ESPALIER_ASSIGN(const Outputs out, draft(target, drafter, plan, check));
  return SelfcheckReport{plan.block_size, equal_drafts(plan, check, out), logit_error(check, out)};
}

Status check_drafter(const std::string& folder, Model& target, Model& drafter, const DrafterPlan& plan, const SelfcheckBounds& bounds) {
  const std::string path = folder + "/" + kFile;
  Result<FileMap> map = FileMap::open(path);
  if (!map.ok() && map.status().code() == Code::not_found) return {};
  if (!map.ok()) return std::move(map).status();
  const std::span<const std::byte> bytes = map->bytes();
  Result<Value> file = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!file.ok()) return std::move(file).status().with_context(path);
  Result<SelfcheckReport> report = run_selfcheck(*file, target, drafter, plan);
  if (!report.ok()) return std::move(report).status().with_context(folder);
  const bool drafts = !bounds.all_drafts || report->equal_drafts == report->drafts;
  if (drafts && report->logit_error <= bounds.logit_error_max) return {};
  return corrupt(path + ": the drafter does not draft what its maker wrote down: " + std::to_string(report->equal_drafts) + " of " + std::to_string(report->drafts) +
                     " drafts are equal, and the base logits differ by " + two_digits(report->logit_error) + " of their spread (at most " + two_digits(bounds.logit_error_max) +
                     "). Is it the drafter of this model, and are target_layer_ids and rope_is_neox_style in its config.json right?", "drafter");
}

}  // namespace espalier
