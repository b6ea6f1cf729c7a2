// Time of the attention core of one layer (32 query and 8 KV heads of 64) on one thread:  attention_bench [context [repeats]]
// Prints for each variant, K/V type and number of rows: milliseconds (best of `repeats`), GB/s of K and V read once, Gflop/s.
// Before timing, results are compared with the reference on a short context.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "kernels/attention/attention_harness.h"
#include "kernels/math/random_values.h"

namespace espalier {
namespace {

constexpr uint32_t kHeads = 32, kKvHeads = 8, kDim = 64;

struct Bench {
  AttentionShape shape{kHeads, kKvHeads, kDim, false};
  KvLayout layout;
  HarnessState state;
  std::vector<HarnessRow> rows;

  Bench(KvType type, uint32_t context, uint32_t n_rows) : layout(kv_layout(type, kDim)), state(layout, kKvHeads) {
    RandomValues random(context);
    const size_t kv = size_t{kKvHeads} * kDim;
    for (uint32_t i = 0; i < context; ++i) state.append(random.uniform(kv, 1.0f).data(), random.uniform(kv, 1.0f).data());
    for (uint32_t r = 0; r < n_rows; ++r)
      rows.push_back({0, static_cast<int32_t>(context + r), static_cast<int32_t>(r) - 1, random.uniform(size_t{kHeads} * kDim, 0.2f),
                      random.uniform(kv, 1.0f), random.uniform(kv, 1.0f)});
  }
  // Best time of an attention core in seconds, without plan and K/V writing.
  double best(AttentionFn fn, int repeats) {
    std::vector<AttentionRowIn> in;
    std::vector<float> q, dst(rows.size() * kHeads * kDim);
    for (uint32_t r = 0; r < rows.size(); ++r) {
      in.push_back({0, rows[r].position, rows[r].parent});
      state.store_fresh(r, rows[r].k.data(), rows[r].v.data());
      q.insert(q.end(), rows[r].q.begin(), rows[r].q.end());
    }
    const uint32_t held[] = {state.held()};
    const AttentionPlan plan = *make_attention_plan(shape, in, held, 1);
    const AttentionPages pages = state.pages();
    std::vector<float> scratch(plan.scratch_bytes / 4 + 16);
    void* aligned = scratch.data();
    size_t space = scratch.size() * 4;
    std::align(64, plan.scratch_bytes, aligned, space);
    const AttentionArgs args{.layout = layout, .shape = shape, .q = q.data(), .q_stride = kHeads * kDim, .dst = dst.data(),
                             .dst_stride = kHeads * kDim, .sequences = &pages, .held_offset = HarnessState::kOffset,
                             .fresh_offset = HarnessState::kOffset, .rows = plan.rows.data(), .runs = plan.runs.data(),
                             .partials = nullptr};
    double least = 1e9;
    for (int i = 0; i < repeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (const AttentionItem& item : plan.items) fn(args, item, aligned);
      least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return least;
  }
};

bool matches_reference(AttentionFn fn, KvType type) {
  Bench b(type, 530, 5);
  return harness_attend(b.shape, b.layout, fn, {&b.state}, b.rows, 1) ==
         harness_attend(b.shape, b.layout, attention_variants().back().fn, {&b.state}, b.rows, 1);
}

int run(uint32_t context, int repeats) {
  for (const auto& variant : attention_variants()) {
    if (!isa_available(variant.isa) || (variant.isa == Isa::portable && context > 600)) continue;
    for (KvType type : {KvType::f16, KvType::i8}) {
      if (!matches_reference(variant.fn, type)) {
        std::printf("%s differs from the reference\n", isa_name(variant.isa));
        return 1;
      }
      for (uint32_t n_rows : {1u, 4u, 16u, 64u}) {
        Bench bench(type, context, n_rows);
        const double s = bench.best(variant.fn, repeats);
        const double keys = n_rows * (context + (n_rows + 1) * 0.5), bytes = 2.0 * context * kKvHeads * kDim * bench.layout.element_bytes;
        std::printf("%-12s %s context %u rows %2u: %8.3f ms %6.1f GB/s %6.1f Gflop/s\n", isa_name(variant.isa),
                    type == KvType::f16 ? "f16" : "i8 ", context, n_rows, s * 1e3, bytes / s / 1e9, keys * kHeads * kDim * 4 / s / 1e9);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  const int context = argc > 1 ? std::atoi(argv[1]) : 4096, repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  return espalier::run(static_cast<uint32_t>(std::max(context, 0)), std::max(repeats, 1));
}
