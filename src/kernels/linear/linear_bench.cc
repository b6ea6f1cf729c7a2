// Time of a matrix product against its rows, beside the two ceilings of the machine measured in the same round: reading the
// packed weights once, and the int8 peak of the instruction set. Compares with the portable variant before it times.
//   linear_bench [--tiny] [--isa NAME] [--bits 8] [--group 128] [--offset] [--rows 1,2,4,8,16,24,32,64,512] [--mb 1024]
//                [--cols 2048] [--threads 1] [--rounds 7] [--tile N] [--tile-wide N] [--chunk N] [--chunk-wide N] [--unpack N]
//                [--row-major N] [--row-major-cols N] [--cpu-time]
// Columns: milliseconds for 2.69e9 weights (LFM2.5-2.6B), medians; share = floor / time, median over rounds of probe, call,
// probe; a round whose read probes differ by more than 5 % counts only if there is no better one.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <utility>

#include "base/fp_mode.h"
#include "base/thread_team.h"
#include "kernels/linear/linear_cases.h"
#include "kernels/linear/test_peak.h"

using namespace espalier;

namespace {

struct Options {
  bool tiny = false, offset = false, cpu_time = false;
  Isa isa = Isa::portable;
  uint32_t bits = 8, group = 128, mb = 1024, cols = 2048, threads = 1, rounds = 7;
  std::vector<uint32_t> rows = {1, 2, 4, 8, 16, 24, 32, 64, 512};
  LinearPlan plan;
};

// Wall time, or the thread's own: on a machine that others use, the only one that tells loops apart.
double now(bool cpu_time) {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  if (timespec t; cpu_time && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
#endif
  static_cast<void>(cpu_time);
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename T>
double median(std::vector<T> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Random codes, scales near 0.001: written straight into the panels, which is faster than packing a gigabyte.
PackedMatrix random_matrix(const PackedForm& form) {
  Result<PackTarget> target = allocate_packed(form);
  if (!target.ok()) {
    std::fprintf(stderr, "linear_bench: %s\n", target.status().message().c_str());
    std::exit(1);
  }
  const size_t bytes = packed_bytes(form), group_bytes = full_group_bytes(form), codes = size_t{form.group} * 64 * form.bits / 8;
  uint8_t* const data = target->memory.get();
  cases::Random random(7);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random.next();
    std::memcpy(data + i, &word, 8);
  }
  for (size_t g = 0; g + group_bytes <= bytes; g += group_bytes)
    for (size_t i = g + codes; i < g + group_bytes; i += 2) {
      const uint16_t scale = static_cast<uint16_t>(0x1400 + (data[i] & 0xff));
      std::memcpy(data + i, &scale, 2);
    }
  return finish(std::move(target).value());
}

struct Activations {
  Activations(const PackedForm& form, uint32_t n_rows, const Options& o) : case_{} {
    case_.form = form;
    case_.n_rows = n_rows;
    case_.plan = o.plan;
    x = cases::make_rows(case_);
    quantized = std::make_unique<cases::Quantized>(case_, o.isa, x.data());
  }
  cases::Case case_;
  std::vector<float> x;
  std::unique_ptr<cases::Quantized> quantized;
};

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o),
        form_{rows_of(o), o.cols, static_cast<uint8_t>(o.bits), static_cast<uint8_t>(o.group), ScaleType::f16, o.offset, 0},
        weights_(random_matrix(form_)),
        team_(o.threads) {}

  int run() {
    std::printf("%s %s, %u x %u, %.0f MB, %u thread%s\n", isa_name(o_.isa), form_name(form_).c_str(), form_.rows, form_.cols,
                static_cast<double>(packed_bytes(form_)) / 1e6, team_.size(), team_.size() == 1 ? "" : "s");
    for (uint32_t n : o_.rows)
      if (!one_width(n)) return 1;
    return 0;
  }

 private:
  static uint32_t rows_of(const Options& o) {
    const PackedForm one{64, o.cols, static_cast<uint8_t>(o.bits), static_cast<uint8_t>(o.group), ScaleType::f16, o.offset, 0};
    const uint64_t bytes = o.tiny ? 1 << 18 : uint64_t{o.mb} << 20;
    return static_cast<uint32_t>(std::max<uint64_t>(2, bytes / panel_bytes(one))) * 64;
  }

  double timed(const std::function<void(uint32_t)>& fn) {
    const double t0 = now(false);
    std::vector<double> own(team_.size());
    team_.run([&](uint32_t t) {
      const double start = now(true);
      fn(t);
      own[t] = now(true) - start;
    });
    return o_.cpu_time ? *std::max_element(own.begin(), own.end()) : now(false) - t0;
  }

  double read_gbps() {
    const size_t bytes = packed_bytes(form_), part = bytes / team_.size() / 4096 * 4096;
    double best = 0;
    for (uint32_t streams : {1u, 4u}) {
      const double s = timed([&](uint32_t t) { sink_.fetch_xor(test_peak::read(weights_.data + t * part, part, streams)); });
      best = std::max(best, static_cast<double>(part) * team_.size() / s / 1e9);
    }
    return best;
  }
  double peak_gmacs() {
    const uint64_t steps = o_.tiny ? 1000 : 2000000;
    std::atomic<uint64_t> macs = 0;
    const double s = timed([&](uint32_t) { macs.store(test_peak::int8_macs(o_.isa, steps)); });
    return static_cast<double>(macs.load()) * team_.size() / s / 1e9;
  }

  bool one_width(uint32_t n) {
    const Activations a(form_, n, o_);
    const uint32_t all = panel_count(form_), panels = n > 64 ? std::max(team_.size() * 4, all / 32) : all;
    std::vector<float> dst(size_t{n} * form_.rows);
    if (!check(a, n)) return false;
    const LinearFn linear = pick(linear_variants(), o_.isa);
    std::vector<cases::Aligned> scratch;
    for (uint32_t t = 0; t < team_.size(); t++) scratch.emplace_back(linear_scratch_bytes(n));
    const auto call = [&](uint32_t t) {
      const uint32_t used = std::min(panels, all);
      linear({&weights_, &a.quantized->rows, used * t / team_.size(), used * (t + 1) / team_.size(), dst.data(), form_.rows,
              nullptr, nullptr, 0, scratch[t].memory.get(), &o_.plan});
    };
    // A small set is run many times in a row: from the caches, then.
    const uint64_t work = uint64_t{std::min(panels, all)} * 64 * form_.cols * n;
    const uint32_t repeats = o_.tiny ? 1 : static_cast<uint32_t>(std::max<uint64_t>(1, 400'000'000 / work));
    const double used = std::min(panels, all), macs = used * 64.0 * form_.cols * n,
                 bytes = used * static_cast<double>(panel_bytes(form_));
    std::vector<double> shares, steady, times, reads, peaks, peak_shares;
    for (uint32_t round = 0; round < o_.rounds; round++) {
      const double read0 = read_gbps(), peak0 = peak_gmacs(),
                   s = timed([&](uint32_t t) {
                         for (uint32_t i = 0; i < repeats; i++) call(t);
                       }) /
                       repeats,
                   peak1 = peak_gmacs(), read1 = read_gbps();
      const double read = (read0 + read1) / 2, peak = (peak0 + peak1) / 2;
      const double floor = std::max(bytes / read / 1e9, macs / peak / 1e9);
      shares.push_back(floor / s);
      if (std::fabs(read0 - read1) < 0.05 * read) steady.push_back(floor / s);
      times.push_back(s * 2.69e9 / (used * 64.0 * form_.cols));
      reads.push_back(read), peaks.push_back(peak), peak_shares.push_back(macs / s / 1e9 / peak);
    }
    uint64_t hash = 0xcbf29ce484222325u;
    cases::add_to_hash(hash, dst.data(), dst.size() * sizeof(float));
    std::printf(
        "rows %3u  %8.1f ms  (best %.1f)  read %5.1f GB/s  peak %6.0f GMAC/s  share %3.0f %%  of the peak %3.0f %%  hash "
        "%016" PRIx64 "\n",
        n, median(times) * 1e3, *std::min_element(times.begin(), times.end()) * 1e3, median(reads), median(peaks),
        100 * median(steady.empty() ? shares : steady), 100 * median(peak_shares), hash);
    std::fflush(stdout);
    return true;
  }

  // The first two panels against the portable variant.
  bool check(const Activations& a, uint32_t n) {
    std::vector<float> dst(size_t{n} * 128), expected(dst.size());
    cases::Aligned scratch(linear_scratch_bytes(n));
    LinearArgs args{&weights_, &a.quantized->rows, 0, 2, dst.data(), 128, nullptr, nullptr, 0, scratch.memory.get(), &o_.plan};
    pick(linear_variants(), o_.isa)(args);
    args.dst = expected.data();
    pick(linear_variants(), Isa::portable)(args);
    if (std::memcmp(dst.data(), expected.data(), dst.size() * sizeof(float)) == 0) return true;
    std::fprintf(stderr, "linear_bench: %u rows: the result differs from the portable variant's\n", n);
    return false;
  }

  Options o_;
  PackedForm form_;
  PackedMatrix weights_;
  ThreadTeam team_;
  std::atomic<uint64_t> sink_ = 0;  // keeps the reads alive
};

int usage(const char* option) {
  std::fprintf(stderr, "linear_bench: '%s' is not an option, or its value is missing or not one that it takes\n", option);
  return 2;
}

std::vector<uint32_t> numbers(const std::string& list) {
  std::vector<uint32_t> out;
  for (size_t at = 0; at < list.size(); at = list.find(',', at) == std::string::npos ? list.size() : list.find(',', at) + 1)
    out.push_back(static_cast<uint32_t>(std::strtoul(list.c_str() + at, nullptr, 10)));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const FpMode mode;
  Options o;
  o.isa = available_isas().front();
  for (int i = 1; i + 1 < argc; i++)
    if (std::string(argv[i]) == "--isa")
      for (Isa isa : available_isas())
        if (std::string(argv[i + 1]) == isa_name(isa)) o.isa = isa;
  o.plan = default_linear_plan(o.isa);
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    if (name == "--tiny") {
      o.tiny = true;
      o.rounds = 1;
      continue;
    }
    if (name == "--offset" || name == "--cpu-time") {
      (name == "--offset" ? o.offset : o.cpu_time) = true;
      continue;
    }
    if (i + 1 == argc) return usage(argv[i]);
    const std::string value = argv[++i];
    const uint32_t n = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    const std::pair<const char*, uint32_t*> table[] = {{"--bits", &o.bits},
                                                       {"--group", &o.group},
                                                       {"--mb", &o.mb},
                                                       {"--cols", &o.cols},
                                                       {"--threads", &o.threads},
                                                       {"--rounds", &o.rounds},
                                                       {"--tile", &o.plan.tile_rows_narrow},
                                                       {"--tile-wide", &o.plan.tile_rows_wide},
                                                       {"--chunk", &o.plan.chunk_inputs_narrow},
                                                       {"--chunk-wide", &o.plan.chunk_inputs_wide},
                                                       {"--unpack", &o.plan.unpack_rows_min},
                                                       {"--row-major", &o.plan.row_major_min},
                                                       {"--row-major-cols", &o.plan.row_major_cols_min}};
    const auto found = std::find_if(std::begin(table), std::end(table), [&](const auto& t) { return name == t.first; });
    if (found != std::end(table))
      *found->second = n;
    else if (name == "--rows")
      o.rows = numbers(value);
    else if (name != "--isa")
      return usage(argv[i - 1]);
    else if (value != isa_name(o.isa))
      return usage(argv[i]);
  }
  const PackedForm form{64, o.cols, static_cast<uint8_t>(o.bits), static_cast<uint8_t>(o.group), ScaleType::f16, o.offset, 0};
  if (!validate(form).ok() || !valid(o.plan) || o.rounds == 0 || o.cols % o.group != 0)
    return usage("--bits, --group, --cols or a plan");
  return Bench(o).run();
}
