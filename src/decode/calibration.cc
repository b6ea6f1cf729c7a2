#include "decode/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "decode/apply_canonical.h"
#include "kernels/math/canonical.h"
#include "kernels/math/precise.h"

namespace espalier {
namespace {

constexpr double kSlopeMin = 0.05, kSlopeMax = 10;
constexpr float kLogitMax = 13.8155f;  // of 1 - 1e-6
// Outcomes that a calibration's start counts as, so that the first few surprises don't throw it over.
constexpr double kStartWeight = 16;

double sigma(double z) { return 1.0 / (1.0 + precise_exp(std::clamp(-z, -700.0, 700.0))); }

// -log likelihood of an outcome whose log-odds are z.
double loss_of(double z, bool accepted) {
  const double against = accepted ? -z : z;
  return std::max(against, 0.0) + precise_log(1.0 + precise_exp(-std::fabs(against)));
}

struct Problem {
  std::span<const ScoredOutcome> outcomes;
  double a0, b0, prior;
  double loss(double a, double b) const {
    double sum = 0.5 * prior * ((a - a0) * (a - a0) + (b - b0) * (b - b0));
    for (const ScoredOutcome& o : outcomes) sum += loss_of(a * static_cast<double>(o.logit) + b, o.accepted);
    return sum;
  }
};

struct Gradient {
  double a, b, aa, ab, bb;
};

Gradient gradient(const Problem& p, double a, double b) {
  Gradient g{p.prior * (a - p.a0), p.prior * (b - p.b0), p.prior, 0, p.prior};
  for (const ScoredOutcome& o : p.outcomes) {
    const double x = static_cast<double>(o.logit), q = sigma(a * x + b), w = q * (1 - q), e = q - (o.accepted ? 1.0 : 0.0);
    g.a += e * x;
    g.b += e;
    g.aa += w * x * x;
    g.ab += w * x;
    g.bb += w;
  }
  return g;
}

}  // namespace

float logit_of(float p) {
  p = std::clamp(p, 1e-6f, 1.0f - 1e-6f);
  return canonical_log(p / (1.0f - p));
}
float probability_of(float logit) { return canonical_sigmoid(std::clamp(logit, -kLogitMax, kLogitMax)); }

Platt fit_platt(std::span<const ScoredOutcome> outcomes, Platt start, float prior) {
  const Problem p{outcomes, static_cast<double>(start.a), static_cast<double>(start.b), 0.25 * std::max(static_cast<double>(prior), 1e-3)};
  double a = p.a0, b = p.b0, now = p.loss(a, b);
  for (int round = 0; round < 100; ++round) {
    const Gradient g = gradient(p, a, b);
    // At a bound that the loss pushes against, only b moves.
    const bool held = (a <= kSlopeMin && g.a > 0) || (a >= kSlopeMax && g.a < 0);
    const double det = g.aa * g.bb - g.ab * g.ab;
    const double da = held ? 0 : (g.bb * g.a - g.ab * g.b) / det, db = held ? g.b / g.bb : (g.aa * g.b - g.ab * g.a) / det;
    double step = 1, next_a = a, next_b = b, next = now;
    for (; step > 1e-6; step /= 2) {
      next_a = std::clamp(a - step * da, kSlopeMin, kSlopeMax);
      next_b = b - step * db;
      next = p.loss(next_a, next_b);
      if (next < now) break;
    }
    if (!(next < now - 1e-12 * std::fabs(now))) break;
    a = next_a;
    b = next_b;
    now = next;
  }
  return {static_cast<float>(a), static_cast<float>(b)};
}

Calibration::Calibration(std::vector<Platt> start, float memory)
    : platts_(std::move(start)), curvature_(platts_.size()), keep_(memory > 1 ? 1.0 - 1.0 / static_cast<double>(memory) : 0), learns_(memory > 0) {
  ESP_CHECK(!platts_.empty());
}

void Calibration::probabilities(size_t slot, std::span<float> values) const {
  const Platt& platt = platts_[slot_of(slot)];
  for (float& v : values) v = std::clamp(platt.a * v + platt.b, -kLogitMax, kLogitMax);
  apply_canonical(CanonicalFunction::sigmoid, values);
}

// A Newton step for each outcome, with the curvature of those before it: the online form of the fit.
void Calibration::learn(size_t slot, float logit, bool accepted) {
  if (!learns_ || !(std::fabs(logit) < 1e6f)) return;
  slot = slot_of(slot);
  Platt& platt = platts_[slot];
  Curvature& c = curvature_[slot];
  const double a = static_cast<double>(platt.a), b = static_cast<double>(platt.b);
  const double x = std::clamp(static_cast<double>(logit), -static_cast<double>(kLogitMax), static_cast<double>(kLogitMax));
  const double q = sigma(a * x + b), w = q * (1 - q), e = (accepted ? 1.0 : 0.0) - q;
  c = {keep_ * c.aa + w * x * x, keep_ * c.ab + w * x, keep_ * c.bb + w};
  const double aa = c.aa + 0.25 * kStartWeight, bb = c.bb + 0.25 * kStartWeight, det = aa * bb - c.ab * c.ab;
  const double da = (bb * x - c.ab) * e / det, db = (aa - c.ab * x) * e / det;
  platt.a = static_cast<float>(std::clamp(a + std::clamp(da, -0.25, 0.25), kSlopeMin, kSlopeMax));
  platt.b = static_cast<float>(std::clamp(b + std::clamp(db, -0.5, 0.5), -12.0, 12.0));
}

int64_t Reliability::count() const {
  int64_t n = 0;
  for (const Bin& b : bins) n += b.count;
  return n;
}

void Reliability::add(float probability, bool accepted) {
  const double p = std::clamp(static_cast<double>(probability), 1e-6, 1.0 - 1e-6);
  Bin& bin = bins[std::min(static_cast<size_t>(p * 10), bins.size() - 1)];
  ++bin.count;
  bin.accepted += accepted ? 1 : 0;
  bin.predicted += p;
  log_loss -= precise_log(accepted ? p : 1 - p);
}

void Reliability::merge(const Reliability& other) {
  for (size_t i = 0; i < bins.size(); ++i) {
    bins[i].count += other.bins[i].count;
    bins[i].accepted += other.bins[i].accepted;
    bins[i].predicted += other.bins[i].predicted;
  }
  log_loss += other.log_loss;
}

}  // namespace espalier
