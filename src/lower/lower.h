// Rewrites a program into primitives at fixed shapes: one function for each wanted window, bucket and form of the head.
//
// Inputs of a lowered function (only those that it needs), W rows of the window, C columns of the bucket:
//   embedding       (1, H, 1, W)        rows of the embedding table, looked up by the host
//   <name>          (1, n, 1, W)        feature inputs of the original function ("taps", "direction")
//   cos.R, sin.R    (1, 1, hd/2, W)     of RoPE table R at the rows' positions
//   mask            (1, 1, C + W, W)    0 where row s sees key c (bucket columns first), else kMasked; (1, 1, W, W) without states
//   ancestor.K      (1, 1, 32 + W, W)   one-hot: the frame that is row s's K-th ancestor, of the frames state's columns and the window's rows
//   keep, place     (1, 1, 1, C), (1, 1, W, C)   K/V columns that stay, and the row that goes into each other one (form place)
//   offset          i32 (1, 1, 1, 1)    first column of the block that is written (form dynamic)
//   place_frames    (1, 1, 32 + W, 32)  one-hot: what each column of a frames state becomes (forms place and dynamic)
//   choose          (1, 1, W, R)        one-hot: the rows whose head is wanted, R = min(W, kChosenRows)
// Outputs: taps by name (1, n, 1, W); head.max and head.index (1, sub-ranges, 1, R), or logits.N (1, entries, 1, R) for each sub-range N; the
// new K/V and frames by the state's name (1, channels, 1, W) (form delta).
#pragma once

#include <optional>

#include "lower/lowered.h"

namespace espalier {

// How a norm keeps its squares within fp16 (above 65504 from |x| = 256 on).
enum class NormForm : uint8_t {
  plain,   // mean(x^2) + eps as it stands: for models whose activations are known to fit
  scaled,  // x is divided by the row's largest |x| first, and the square root of eps with it: the same value for any x
};

struct LowerOptions {
  KvForm kv = KvForm::place;
  ScalarType weights = ScalarType::f16;  // of matrices; i8: one scale for each output
  NormForm norm = NormForm::scaled;
  int32_t subrange = 2000;               // entries of the vocabulary in each part of the head
  int32_t attention_chunks = 1;          // more: the keys in so many parts, merged exactly
  std::optional<std::vector<std::string>> taps;  // outputs to give; nothing: all that the function has
  std::vector<FunctionSpec> functions;
};

// Verified. Refused (unsupported, naming the op): a centred convolution; more frames than kFrameSlots.
Result<LoweredProgram> lower(const Program& program, const LowerOptions& options);

}  // namespace espalier
