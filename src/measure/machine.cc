#include "measure/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "kernels/linear/test_peak.h"

namespace espalier {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

MachineProbe::MachineProbe(Isa isa, uint32_t threads, size_t bytes) : isa_(isa), team_(threads), bytes_(bytes / 4096 * 4096) {
  data_ = static_cast<unsigned char*>(std::aligned_alloc(4096, bytes_));
  if (data_ == nullptr) bytes_ = 0;
  for (size_t i = 0; i < bytes_; i += 64) data_[i] = static_cast<unsigned char>(i >> 6);  // really there, no shared zero page
}

MachineProbe::~MachineProbe() { std::free(data_); }

Ceilings MachineProbe::measure() {
  Ceilings out;
  std::atomic<uint64_t> sink{0};
  // The peak first: tile registers at full speed lower a processor's clock for some milliseconds.
  constexpr uint64_t kSteps = 400000;
  std::atomic<uint64_t> macs{0};
  const double start = seconds();
  team_.run([&](uint32_t) { macs += test_peak::int8_macs(isa_, kSteps); });
  out.int8_gops = 2 * static_cast<double>(macs) / (seconds() - start) * 1e-9;
  const size_t part = bytes_ / team_.size() / 4096 * 4096;
  for (const uint32_t streams : {1u, 2u, 4u, 8u}) {
    if (part == 0) break;
    const double t0 = seconds();
    team_.run([&](uint32_t thread) { sink += test_peak::read(data_ + thread * part, part, streams); });
    out.read_gbps = std::max(out.read_gbps, static_cast<double>(part * team_.size()) / (seconds() - t0) * 1e-9);
  }
  return out;
}

}  // namespace espalier
