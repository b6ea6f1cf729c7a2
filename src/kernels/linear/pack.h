// Packing: rows of a checkpoint into a PackedMatrix.
//
// Two kinds of source. Float rows are quantised here (rules below). Coded rows (GGUF blocks, MLX affine) already have codes,
// scales and offsets, and are moved without changing a value. Panels are independent: threads take ranges of panels.
//
// Quantisation of float rows, a group of one output at a time, deterministic, all in fp32 with IEEE operations:
//     8 bits symmetric  s = narrow(max|w| / 127),  q = clamp(rne(w / s), -127, 127) + 128
//     4 bits symmetric  m = the w of largest |w| (the first), s = narrow(m / -8),  q = clamp(rne(w / s) + 8, 0, 15)
//     with offset       b = narrow(min w), s = narrow((max w - b) / (2^bits - 1)),  q = clamp(rne((w - b) / s), 0, 2^bits - 1)
// narrow() rounds to the scale type; codes come from the rounded values; s == 0 gives code `zero` (or 0).
#pragma once

#include <cstdint>
#include <span>

#include "espalier/status.h"
#include "kernels/linear/packed.h"

namespace espalier {

// Both kinds: called from several threads at once, for any row below form.rows, in no order.
class FloatRows {
 public:
  virtual ~FloatRows() = default;
  virtual Status read(uint32_t row, std::span<float> dst) const = 0;  // dst (cols)
};

struct CodedRow {
  std::span<uint8_t> codes;  // (cols): 0..2^bits - 1; symmetric forms hold q + 128 or q + 8
  std::span<float> scales;   // (groups), widened exactly from the scale type
  std::span<float> offsets;  // (groups), or empty for symmetric forms
};
class CodedRows {
 public:
  virtual ~CodedRows() = default;
  virtual Status read(uint32_t row, const CodedRow& dst) const = 0;
};

// Squared error and squared size of what was packed, in the packed basis. Add those of ranges in panel order.
struct PackError {
  double error_squares = 0;
  double weight_squares = 0;
  void add(const PackError& more);
  double relative_rms() const;  // sqrt(error / weights); 0 for an all-zero matrix
};

// Owned memory for a form, on huge pages where the system has them. Fails on an invalid form and when memory is refused.
struct PackTarget {
  PackedForm form;
  std::shared_ptr<uint8_t> memory;  // packed_bytes(form), 64-byte aligned
};
Result<PackTarget> allocate_packed(const PackedForm& form);
// A target in memory of the caller (a mapped output file). Requires: packed_bytes(form) bytes.
PackTarget packed_target(const PackedForm& form, std::shared_ptr<uint8_t> memory);

// Packs the panels [first, last), every byte of them. Fails with the source's own status, on a weight that is not finite, on a
// group whose scale overflows its type, and (coded) on a code, scale or offset that the form cannot hold exactly; the sentence
// names the row.
Status pack_panels(const FloatRows& source, const PackTarget& target, uint32_t first, uint32_t last, PackError* error);
Status pack_panels(const CodedRows& source, const PackTarget& target, uint32_t first, uint32_t last);

// Read-only from here on.
PackedMatrix finish(PackTarget target);

// All panels on the calling thread.
Result<PackedMatrix> pack(const FloatRows& source, const PackedForm& form, PackError* error = nullptr);
Result<PackedMatrix> pack(const CodedRows& source, const PackedForm& form);

}  // namespace espalier
