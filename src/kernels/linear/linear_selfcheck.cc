// Runs the grid of linear_cases.h with every instruction set of this machine and prints one hash for each, without any
// library. All must be equal, here and between machines. Exit 1 if they differ here.
//   linear_selfcheck [stride]     every stride-th case (default 1)
#include <cinttypes>
#include <cstdio>

#include "base/fp_mode.h"
#include "kernels/linear/linear_cases.h"

using namespace espalier;

namespace {

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
  return hash;
}

}  // namespace

int main(int argc, char** argv) {
  const FpMode mode;
  const int stride = argc > 1 ? std::atoi(argv[1]) : 1;
  if (stride < 1) {
    std::fprintf(stderr, "usage: linear_selfcheck [stride >= 1]\n");
    return 2;
  }
  uint64_t first = 0;
  bool equal = true;
  for (Isa isa : available_isas()) {
    const uint64_t hash = hash_of(isa, static_cast<uint32_t>(stride));
    first = first == 0 ? hash : first;
    equal = equal && hash == first;
    std::printf("%s %016" PRIx64 "\n", isa_name(isa), hash);
  }
  return equal ? 0 : 1;
}
