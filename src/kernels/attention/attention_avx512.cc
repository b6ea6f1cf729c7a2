#include "kernels/math/simd_avx512.h"

namespace espalier {
namespace {
// 32 registers: 4 queries by 4 partial sums, and 4 queries by 64 dims.
constexpr uint32_t kScoreRows = 4, kValueRows = 4;
constexpr int kScoreParts = 4, kValueColumns = 4;
}  // namespace
}  // namespace espalier

#include "kernels/attention/attention_simd.h"

namespace espalier {
void attention_avx512(const AttentionArgs& args, const AttentionItem& item, void* scratch) { attention_item(args, item, scratch); }
}  // namespace espalier
