// What a call of the target costs: milliseconds by rows and context, measured on this machine or modelled from its ceilings.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/grow_tree.h"

namespace espalier {

struct CostCurve {
  struct Band {
    double context = 0;                      // positions held before a row
    std::array<double, kDraftRowsMax> ms{};  // of a call of 1, 2 ... 64 rows: positive, never falling
  };
  std::vector<Band> bands;  // context ascending; at least one
  bool measured = false;    // false: modelled, so its steps are not known
  std::vector<int32_t> seen;  // modelled: widths whose times were measured all the same (the calls that found the ceilings)

  // Linear between bands and beyond the last; the first serves everything below it. More than 64 rows: in proportion to 64's.
  // Requires: rows >= 1, at least one band.
  double ms(int32_t rows, double context) const;
};

// One timed call.
struct CostSample {
  int32_t rows;
  double context;
  double ms;
};

// Medians by (context, rows), held to 1.1 times the next wider one and made isotonic over rows (pool adjacent violators, weighted by the number of samples); widths that
// were not measured lie on the line between their neighbours, wider ones in proportion to their rows. Samples of one band have the same context. Samples with rows
// outside 1 ... 64 or a time that is not positive are ignored; a curve without bands says that none was left.
CostCurve fit_curve(std::span<const CostSample> samples);

// The two ceilings: a call takes max(bytes / bandwidth, rows / rate) + host.
struct Ceilings {
  double weight_bytes = 0;        // read by every call
  double position_bytes = 0;      // read for each position held
  double bytes_per_ms = 1;
  double rows_per_ms = 1;
  double host_ms = 0;
};
CostCurve modelled_curve(const Ceilings& ceilings);

// The non-decreasing sequence closest to `values` in weighted squares. weights > 0, as many as values.
std::vector<double> isotonic(std::span<const double> values, std::span<const double> weights);

}  // namespace espalier
