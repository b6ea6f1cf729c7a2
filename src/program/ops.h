// What each op means: its inputs, weights and outputs. The verifier and every unit follow this table.
//
//   op            in                 weights                      out            definition (row r)
//   embed         -                  table (V, H)                 h (H)          h = table[token of r]
//   rms_norm      x (n)              w (n)                        y (n)          y = w * x / sqrt(mean(x^2) + eps)
//   linear        x (k)              W (n, k), bias? (n)          y (n)          y = W x + bias
//   short_conv    p (3n): B, C, x    taps (n, L), bias? (n)       y (n)          u = B*x;  v = sum_t taps[.,t] * u[ancestor L-1-t];
//                                                                                y = C * (v + bias). State: frames of u.
//                                                                                centred: rows r - L/2 ... of the call, no state
//   qk_norm_rope  q? (nh*hd),        q norm? (hd), k norm? (hd)   q?, k          RMS norm of each head, then RoPE at the row's
//                 k (nkv*hd)                                                     position; q then times q_scale
//   attention     q? (nh*hd),        -                            o? (nh*hd)     o = softmax(q K^T) V over the rows that the mask
//                 k, v (nkv*hd)                                                  shows, q already scaled; without q: only keeps k, v
//   swiglu        g (n), u (n)       -                            y (n)          y = g / (1 + exp(-g)) * u
//   add           a (n), b (n)       -                            y (n)          y = a + b
//   head          x (n)              table (V, n)                 -              logits = table x, for the rows that ask
//
// "?": optional, kNone where absent. Query head j reads K/V head j / (nh / nkv).
#pragma once

#include "program/program.h"

namespace espalier {

struct OpShape {
  int inputs, weights, outputs;
};
inline constexpr OpShape kOpShapes[] = {{0, 1, 1}, {1, 1, 1}, {1, 2, 1}, {1, 2, 1}, {2, 2, 2}, {3, 0, 1}, {2, 0, 1}, {2, 0, 1}, {1, 1, 0}};

}  // namespace espalier
