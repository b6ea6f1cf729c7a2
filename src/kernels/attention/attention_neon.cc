#include "kernels/math/simd_neon.h"

namespace espalier {
namespace {
// 32 registers: 2 queries by 2 partial sums by 4 quarters of a tile, and 4 queries by 16 dims.
constexpr uint32_t kScoreRows = 2, kValueRows = 4;
constexpr int kScoreParts = 2, kValueColumns = 4;
}  // namespace
}  // namespace espalier

#include "kernels/attention/attention_simd.h"

namespace espalier {
void attention_neon(const AttentionArgs& args, const AttentionItem& item, void* scratch) { attention_item(args, item, scratch); }
}  // namespace espalier
