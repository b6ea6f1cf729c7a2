// Runs every kernel of this room except the matrix products on fixed inputs, with every variant that the machine has, and prints
// one hash. All variants must agree with the reference, and the hash with the one below: it is part of the definition, so a
// change of it is a change of rules.md, section 2.
#include <cstdio>

#include "base/fp_mode.h"
#include "kernels/add/add.h"
#include "kernels/attention/attention_harness.h"
#include "kernels/math/apply.h"
#include "kernels/math/random_values.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope_table.h"
#include "kernels/short_conv/short_conv.h"
#include "kernels/swiglu/swiglu.h"

namespace espalier {
namespace {

constexpr uint64_t kExpected = 0xa09b7c556ed11d32;

void elementwise(BitHash& hash, Isa isa) {
  RandomValues random(1);
  for (uint32_t dim : {5u, 64u, 577u}) {
    const std::vector<float> a = random.uniform(dim, 30.0f), b = random.uniform(dim, 2.0f);
    std::vector<float> y(dim);
    for (int f = 0; f < 5; ++f) {
      pick(apply_variants(), isa)({static_cast<CanonicalFunction>(f), a.data(), y.data(), dim});
      hash.add(y);
    }
    pick(rms_norm_variants(), isa)({.src = a.data(), .src_stride = dim, .gain = b.data(), .dst = y.data(), .dst_stride = dim,
                                    .n_rows = 1, .dim = dim, .eps = 1e-5f});
    hash.add(y);
    pick(add_variants(), isa)({a.data(), dim, b.data(), dim, y.data(), dim, 1, dim});
    hash.add(y);
    pick(swiglu_variants(), isa)({a.data(), dim, b.data(), dim, y.data(), dim, 1, dim});
    hash.add(y);
  }
}

void convolution(BitHash& hash, Isa isa) {
  RandomValues random(2);
  constexpr uint32_t kDim = 75, kRows = 4;
  const std::vector<float> p = random.uniform(kRows * 3 * kDim, 2.0f), kernel = random.uniform(3 * kDim, 1.0f);
  std::vector<float> u(kRows * kDim), y(kRows * kDim);
  const std::vector<float> zero(kDim, 0.0f);
  std::vector<const float*> frames;
  for (uint32_t r = 0; r < kRows; ++r)
    for (uint32_t back = 3; back-- > 0;) frames.push_back(back > r ? zero.data() : u.data() + (r - back) * kDim);
  pick(short_conv_variants(), isa)({.b = p.data(), .g = p.data() + kDim, .x = p.data() + 2 * kDim, .src_stride = 3 * kDim,
                                    .u = u.data(), .u_stride = kDim, .frames = frames.data(), .kernel = kernel.data(),
                                    .bias = nullptr, .dst = y.data(), .dst_stride = kDim, .n_rows = kRows, .dim = kDim,
                                    .taps = 3, .channel_begin = 0, .channel_end = kDim});
  hash.add(u);
  hash.add(y);
}

void rotation(BitHash& hash, Isa isa) {
  RandomValues random(3);
  for (uint32_t dim : {8u, 64u, 80u}) {
    RopeSpec spec;
    spec.theta = 500000.0;
    spec.head_dim = static_cast<int32_t>(dim);
    spec.factor = 32, spec.low_freq_factor = 1, spec.high_freq_factor = 4, spec.original_context = 8192;
    const RopeTable table(spec);
    const std::vector<float> q = random.uniform(size_t{2} * dim, 2.0f), gain = random.uniform(dim, 2.0f);
    std::vector<float> rope(dim), y(size_t{2} * dim);
    for (int32_t position : {0, 3, 4097, 1000001}) {
      table.fill_row(position, rope.data());
      hash.add(rope);
      for (bool interleaved : {false, true}) {
        pick(qk_norm_rope_variants(), isa)({.src = q.data(), .src_stride = 2 * dim, .dst = y.data(), .dst_stride = 2 * dim,
                                            .rope = rope.data(), .gain = gain.data(), .eps = 1e-6f,
                                            .scale = attention_q_scale(dim), .interleaved = interleaved, .n_rows = 1,
                                            .n_heads = 2, .head_dim = dim});
        hash.add(y);
      }
    }
  }
}

void attention(BitHash& hash, Isa isa) {
  for (KvType type : {KvType::f16, KvType::i8})
    for (uint32_t dim : {8u, 64u, 72u})
      for (uint32_t held : {0u, 5u, 126u, 509u}) {
        const AttentionShape shape{6, 2, dim, false};
        const KvLayout layout = kv_layout(type, dim);
        RandomValues random(held + dim);
        HarnessState state(layout, 2);
        const auto row = [&](int32_t position, int32_t parent) {
          return HarnessRow{0, position, parent, random.uniform(6 * dim, 1.0f), random.uniform(2 * dim, 2.0f),
                            random.uniform(2 * dim, 1.0f)};
        };
        for (uint32_t i = 0; i < held; ++i) {
          const HarnessRow key = row(0, -1);
          state.append(key.k.data(), key.v.data());
        }
        std::vector<HarnessRow> rows;
        for (int32_t i = 0; i < 20; ++i) {
          const int32_t parent = i == 0 ? -1 : i - 1 - static_cast<int32_t>(random.below(static_cast<uint32_t>(i < 3 ? i : 3)));
          rows.push_back(row(parent < 0 ? static_cast<int32_t>(held) : rows[static_cast<size_t>(parent)].position + 1, parent));
        }
        hash.add(harness_attend(shape, layout, pick(attention_variants(), isa), {&state}, rows, 2));
      }
}

uint64_t hash_of(Isa isa) {
  BitHash hash;
  elementwise(hash, isa);
  convolution(hash, isa);
  rotation(hash, isa);
  attention(hash, isa);
  return hash.value();
}

}  // namespace
}  // namespace espalier

int main() {
  using namespace espalier;
  FpMode mode;
  bool same = true;
  for (Isa isa : available_isas()) {
    const uint64_t hash = hash_of(isa);
    std::printf("%-13s %016llx\n", isa_name(isa), static_cast<unsigned long long>(hash));
    same = same && hash == kExpected;
  }
  if (!same) std::printf("expected      %016llx\n", static_cast<unsigned long long>(kExpected));
  return same ? 0 : 1;
}
