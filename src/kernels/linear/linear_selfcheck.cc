// Runs the grid of linear_cases.h, and head scans, with every instruction set of this machine (or the one that ESPALIER_ISA
// names) and prints one hash for each, without any library. All must be equal, here and between machines. Exit 1 if they
// differ here.
//   linear_selfcheck [stride]     every stride-th case (default 7: seconds under an emulator; 1 is the whole grid)
#include <cinttypes>
#include <cstdio>

#include "base/fp_mode.h"
#include "kernels/head/head.h"
#include "kernels/linear/linear_cases.h"

using namespace espalier;

namespace {

void add_head(uint64_t& hash, Isa isa) {
  for (uint32_t n : {1u, 15u, 1000u, 1024u, 5003u}) {
    cases::Random random(n);
    std::vector<float> logits(n);
    for (float& x : logits) x = random.uniform() * 20;
    std::vector<HeadPart> parts((n + kHeadBlock - 1) / kHeadBlock);
    pick(head_scan_variants(), isa)({logits.data(), 0, n, true, parts.data()});
    const HeadPart all = merge_parts(parts);
    const float lse = log_sum_exp(all);
    cases::add_to_hash(hash, &all, sizeof all);
    cases::add_to_hash(hash, &lse, sizeof lse);
  }
}

uint64_t hash_of(Isa isa, uint32_t stride) {
  uint64_t hash = 0xcbf29ce484222325u;
  const LinearFn linear = pick(linear_variants(), isa);
  cases::for_each_case(stride, [&](const cases::Case& c) {
    const PackedMatrix weights = cases::make_matrix(c);
    cases::add_to_hash(hash, weights.data, packed_bytes(c.form));
    const std::vector<float> x = cases::make_rows(c);
    const cases::Quantized q(c, isa, x.data());
    const std::vector<float> dst = cases::run_linear(c, weights, q.rows, linear);
    cases::add_to_hash(hash, dst.data(), dst.size() * sizeof(float));
    std::vector<float> row(c.form.cols);
    embed_row(weights, c.form.rows / 2, row.data());
    cases::add_to_hash(hash, row.data(), row.size() * sizeof(float));
  });
  add_head(hash, isa);
  return hash;
}

}  // namespace

int main(int argc, char** argv) {
  const FpMode mode;
  const int stride = argc > 1 ? std::atoi(argv[1]) : 7;
  if (stride < 1) {
    std::fprintf(stderr, "usage: linear_selfcheck [stride >= 1]\n");
    return 2;
  }
  std::vector<Isa> isas = available_isas();
  if (std::getenv("ESPALIER_ISA") != nullptr) {
    const Result<Isa> chosen = chosen_isa();
    if (!chosen.ok()) {
      std::fprintf(stderr, "linear_selfcheck: %s\n", chosen.status().message().c_str());
      return 1;
    }
    isas = {*chosen};
  }
  uint64_t first = 0;
  bool equal = true;
  for (Isa isa : isas) {
    const uint64_t hash = hash_of(isa, static_cast<uint32_t>(stride));
    first = first == 0 ? hash : first;
    equal = equal && hash == first;
    std::printf("%s %016" PRIx64 "\n", isa_name(isa), hash);
  }
  return equal ? 0 : 1;
}
