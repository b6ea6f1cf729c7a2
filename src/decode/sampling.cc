#include "decode/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace espalier {
namespace {

std::string number(double x) {
  char text[40];
  snprintf(text, sizeof text, "%.9g", x);
  return text;
}

struct Range {
  const char* field;
  double min, max;
  const char* says;
};
constexpr Range kTemperature{"temperature", 0, 100, "from 0 (greedy) to 100"};
constexpr Range kTopP{"top_p", 0, 1, "above 0 and at most 1"};
constexpr Range kMinP{"min_p", 0, 1, "from 0 to 1"};
constexpr Range kRepetition{"repetition_penalty", 0, 100, "above 0 and at most 100"};
constexpr Range kPresence{"presence_penalty", -100, 100, "from -100 to 100"};
constexpr Range kFrequency{"frequency_penalty", -100, 100, "from -100 to 100"};
constexpr Range kTopK{"top_k", 0, 2147483647, "from 0 (all) to 2147483647"};

Status check(const Range& r, double x, bool open_below = false) {
  if (x >= r.min && x <= r.max && !(open_below && x <= r.min)) return {};
  return invalid(std::string(r.field) + ": expected a number " + r.says + ", found " + number(x), r.field);
}

// The config's number, or the fallback where it is absent or null. Another type is refused.
Result<double> from_config(const Value& config, const Range& r, double fallback, bool open_below = false) {
  const Value* v = config.find(r.field);
  if (v == nullptr || v->is_null()) return fallback;
  if (!v->is_number())
    return corrupt(std::string("generation_config: ") + r.field + ": expected a number, found " + v->type_name(), r.field);
  if (Status s = check(r, v->as_double(), open_below); !s.ok()) return std::move(s).with_context("generation_config");
  return v->as_double();
}

Result<double> choose(const std::optional<double>& asked, const Value& config, const Range& r, double fallback,
                      bool open_below = false) {
  if (!asked) return from_config(config, r, fallback, open_below);
  ESPALIER_TRY(check(r, *asked, open_below));
  return *asked;
}

bool is_false(const Value* v) { return v != nullptr && v->is_bool() && !v->as_bool(); }

Result<double> choose_temperature(const SamplingRequest& request, const Value& config) {
  const bool asks = request.temperature || request.top_k || request.top_p || request.min_p;
  if (is_false(config.find("do_sample")) && !asks) return 0.0;
  return choose(request.temperature, config, kTemperature, 1);
}

Status set_bias(const SamplingRequest& request, int32_t vocabulary, Sampling& out) {
  out.logit_bias = request.logit_bias;
  std::sort(out.logit_bias.begin(), out.logit_bias.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < out.logit_bias.size(); ++i) {
    const auto [id, bias] = out.logit_bias[i];
    if (id < 0 || id >= vocabulary)
      return invalid("logit_bias: token " + std::to_string(id) + " is not one of this model's " + std::to_string(vocabulary), "logit_bias");
    if (!(std::fabs(bias) <= 1000))
      return invalid("logit_bias: expected numbers from -1000 to 1000, found " + number(bias) + " for token " + std::to_string(id), "logit_bias");
    if (i > 0 && out.logit_bias[i - 1].first == id)
      return invalid("logit_bias: token " + std::to_string(id) + " is given twice", "logit_bias");
  }
  return {};
}

}  // namespace

Result<Sampling> resolve_sampling(const SamplingRequest& request, const Value& config, int32_t vocabulary) {
  Sampling out;
  ESPALIER_TRY(set_bias(request, vocabulary, out));
  ESPALIER_ASSIGN(const double temperature, choose_temperature(request, config));
  out.temperature = static_cast<float>(temperature);
  // Below this a float temperature would overflow logit / T: it is greedy in all but name.
  if (out.temperature < 1e-6f) out.temperature = 0;

  const Value none;
  const Value& penalties = out.greedy() ? none : config;
  ESPALIER_ASSIGN(const double repetition, choose(request.repetition_penalty, penalties, kRepetition, 1, true));
  ESPALIER_ASSIGN(const double presence, choose(request.presence_penalty, penalties, kPresence, 0));
  ESPALIER_ASSIGN(const double frequency, choose(request.frequency_penalty, penalties, kFrequency, 0));
  ESPALIER_ASSIGN(const double top_p, choose(request.top_p, config, kTopP, 1, true));
  ESPALIER_ASSIGN(const double min_p, choose(request.min_p, config, kMinP, 0));
  std::optional<double> asked_k;
  if (request.top_k) asked_k = static_cast<double>(*request.top_k);
  ESPALIER_ASSIGN(const double top_k, choose(asked_k, config, kTopK, 0));
  if (top_k != std::floor(top_k)) return invalid("top_k: expected a whole number, found " + number(top_k), "top_k");
  out.repetition_penalty = static_cast<float>(repetition);
  out.presence_penalty = static_cast<float>(presence);
  out.frequency_penalty = static_cast<float>(frequency);
  out.top_p = static_cast<float>(top_p);
  out.min_p = static_cast<float>(min_p);
  out.top_k = static_cast<int32_t>(top_k);
  out.seed = request.seed.value_or(0);
  return out;
}

}  // namespace espalier
