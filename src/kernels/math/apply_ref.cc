#include "kernels/math/apply.h"
#include "kernels/math/canonical.h"

namespace espalier {
namespace {

float value(CanonicalFunction function, float x) {
  switch (function) {
    case CanonicalFunction::exp: return canonical_exp(x);
    case CanonicalFunction::log: return canonical_log(x);
    case CanonicalFunction::tanh: return canonical_tanh(x);
    case CanonicalFunction::sigmoid: return canonical_sigmoid(x);
    case CanonicalFunction::silu: return canonical_silu(x);
  }
  return x;
}

}  // namespace

void apply_ref(const ApplyArgs& args) {
  for (uint32_t i = 0; i < args.n; ++i) args.dst[i] = value(args.function, args.src[i]);
}

}  // namespace espalier
