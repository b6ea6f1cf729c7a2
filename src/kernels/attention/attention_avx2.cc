#include "kernels/math/simd_avx2.h"

namespace espalier {
namespace {
// 16 registers: 2 queries by 2 partial sums by 2 halves of a tile, and 4 queries by 16 dims.
constexpr uint32_t kScoreRows = 2, kValueRows = 4;
constexpr int kScoreParts = 2, kValueColumns = 2;
}  // namespace
}  // namespace espalier

#include "kernels/attention/attention_simd.h"

namespace espalier {
void attention_avx2(const AttentionArgs& args, const AttentionItem& item, void* scratch) { attention_item(args, item, scratch); }
}  // namespace espalier
