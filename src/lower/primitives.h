// What each primitive means, and the shape of what it gives. The builder and the verifier both follow this.
//
//   weight       -                 entry `index` of the program's weights
//   literal      -                 (1, 1, 1, 1): `value`
//   dequantise   q i8 (O,I,1,1), s (O,1,1,1)   q * s
//   read_state   -                 state `index` as it was before the function
//   write_state  x                 state `index` becomes x when the function ends
//   conv1x1      x (1,I,1,S), w (O,I,1,1)      (1,O,1,S): y[o,s] = sum over i ascending of w[o,i] x[i,s]
//   matmul       a (...,M,K), b (...,K,N)      (...,M,N); leading axes broadcast; sum over k ascending
//   add sub mul div maximum   a, b             element by element; axes of extent 1 broadcast; equal ranks
//   sigmoid exp rsqrt   x                      1 / (1 + e^-x), e^x, 1 / sqrt(x)
//   softmax      x                 along `axis`: e^(x - max) / sum
//   reduce_sum reduce_mean reduce_max  x       along `axis`, which stays with extent 1
//   argmax       x                 i32: index of the largest along `axis`, the smallest of equals; the axis stays with extent 1
//   reshape      x                 the same elements under the output's shape
//   transpose    x                 output axis i is input axis order[i]
//   slice        x                 [begin, begin + output extent) of `axis`
//   concat       x...              side by side along `axis`
//   update_block x, new, offset    x with columns [offset, offset + extent of new) of `axis` replaced; offset i32 (1,1,1,1), at run time
#pragma once

#include "lower/lowered.h"

namespace espalier {

// The value that an op gives. `op.out`'s shape is only read where the op does not determine it (reshape, slice): `wanted`.
// Fails where inputs do not fit; the sentence has no prefix.
Result<LoweredValue> infer(const LoweredProgram& program, const LoweredFunction& function, const PrimitiveOp& op, const Shape& wanted);

}  // namespace espalier
